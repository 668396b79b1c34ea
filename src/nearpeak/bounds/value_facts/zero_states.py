"""Recurrent calls whose first states are zero, without the reads and products that these make needless."""

from collections.abc import Sequence
from dataclasses import replace

from nearpeak.bounds.value_facts.call_operands import FactSite, Operand
from nearpeak.core.work.workload import Call
from nearpeak.ops import OPS

_IDLE_GATES = {"lstm": (1, 4), "gru": (1, 3)}
"""Of one step from zero: gates that only scale the state, of how many; of a GRU, only where no bias is scaled."""


def from_zero_states(call: Call, site: FactSite) -> Call | None:
    """Return the call marked as starting from zero states, without the reads that this saves; none for others."""
    if site.case.op != "recurrent":
        return None
    states, params = _operands(site)
    begins_at_zero = not site.attribute("state") or (bool(states) and all(state.fact.is_zero for state in states))
    single = dict(site.case.axes)["steps"] == 1
    if not begins_at_zero or not (single or site.attribute("state")):
        return None
    arguments = {**dict(site.case.axes), **dict(site.case.dtypes), **dict(site.case.attributes), "state": False}
    case = OPS["recurrent"].case(site.case.phase, **arguments)
    shares = _shares(site, params) if single else {}
    shares |= dict.fromkeys((state.buffer for state in states), (1, 1))
    reads = tuple(
        replace(use, bytes=use.bytes - use.bytes * unread // of)
        for use in call.reads
        for unread, of in (shares.get(use.buffer, (0, 1)),)
        if unread < of
    )
    return replace(call, case=case, reads=reads)


def _operands(site: FactSite) -> tuple[Sequence[Operand], Sequence[Operand]]:
    """Return the first states and the weights of a recurrent layer; of one layer only, where no names are stated."""
    if site.operands[0].layout is not None:
        states = [operand for operand in site.operands if operand.name.startswith("hx[")]
        return states, [operand for operand in site.operands if operand.name.startswith("params[")]
    params = 3 if site.attribute("bias") else 2
    return site.operands[1 + params :], site.operands[1 : 1 + params]


def _shares(site: FactSite, params: Sequence[Operand]) -> dict[int, tuple[int, int]]:
    """Return by storage of weights how many of how many rows a single step does not read."""
    biased, cell = bool(site.attribute("bias")), str(site.attribute("cell"))
    size = 2 + 2 * biased + bool(dict(site.case.axes)["projection"])
    size = size if params[0].layout is not None else len(params)
    idle = _IDLE_GATES.get(cell, (0, 1)) if cell == "lstm" or not biased else (0, 1)
    shares = {}
    for place, operand in enumerate(params):
        kind = place % size
        if kind == 1:  # multiplied by the state alone
            shares[operand.buffer] = (1, 1)
        elif kind == 0 or (biased and kind in (2, 3)):
            shares[operand.buffer] = idle
    return shares
