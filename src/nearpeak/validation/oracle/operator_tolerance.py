"""The tolerance of an operator (its `Numerics`) for the attributes of one case."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearpeak.ops import OPS, Numerics


def contract(op: str, arguments: Mapping[str, Any]) -> Numerics:
    """Return the contract of `op` for these arguments.

    What only selects or counts is exact, and is asked for values that differ in their last places too.

    >>> contract("reduce", {"function": "sum"}).kind, contract("reduce", {"function": "argmax"}).kind
    ('normalisation', 'exact')
    """
    numerics = OPS[op].numerics
    named = {name: value for name, value in arguments.items() if isinstance(value, str)}
    chosen = {*named.values(), *(f"{name}={value}" for name, value in named.items())}
    rows = [entry.partition(":") for entry in numerics.rounds]
    numerics = replace(numerics, rounds=tuple(kind for kind, _, choice in rows if not choice or choice in chosen))
    numerics = replace(numerics, by_element=tuple(chosen.intersection(numerics.by_element)))
    if numerics.step_if and arguments.get(numerics.step_if):
        numerics = replace(numerics, steps_count=numerics.steps_count + 1)
    if chosen.intersection(numerics.exact):
        return replace(numerics, kind="exact", steps_count=0, rounds=(*numerics.rounds, "close"))
    if numerics.gates and arguments.get(numerics.gates):
        return replace(numerics, gates="always")
    return numerics
