"""Execution order of a rank's calls in each pass: recomputation, input and weight gradients, reductions, gathers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from nearpeak.base.identity_key import Same
from nearpeak.core.systems.rank_program import RECOMPUTED, RankCall, RankProgram
from nearpeak.systems.training.programs.backward_order import interleaved_backward

_SEND = ("send", "pp")


class PassOrder(NamedTuple):
    """Calls of a rank's passes in the order in which it runs them."""

    forward: tuple[RankCall, ...]
    """Forward pass of a micro-batch."""
    first_forward: tuple[RankCall, ...]
    """That of the first micro-batch, with gathers of updated parameters."""
    backward: tuple[RankCall, ...]
    """Backward pass of a micro-batch, recomputation included."""
    last_backward: tuple[RankCall, ...]
    """That of the last micro-batch, with reductions of gradients."""
    optimizer: tuple[RankCall, ...]
    """Update in the queue."""


def pass_order(program: RankProgram) -> PassOrder:
    """Return the calls of the passes of a program; those of the last programs are kept."""
    return _ordered(Same(program))


@lru_cache(maxsize=1024)
def _ordered(program: "Same[RankProgram]") -> PassOrder:
    rank_program = program.held
    forward, backward = without_sends(rank_program.forward), backward_calls(rank_program)
    gathers = [call for call in rank_program.optimizer if call.is_beside]
    return PassOrder(
        forward=forward, first_forward=with_gathers(forward, gathers) if gathers else forward, backward=backward,
        last_backward=with_reductions(backward, rank_program.gradient) if rank_program.gradient else backward,
        optimizer=tuple(call for call in rank_program.optimizer if not call.is_beside),
    )  # fmt: skip


def without_sends(calls: Sequence[RankCall]) -> tuple[RankCall, ...]:
    """Return the calls without messages between stages, which the executor of schedules delays."""
    return tuple(call for call in calls if call.transfer is None or (call.transfer.kind, call.transfer.dim) != _SEND)


def backward_calls(program: RankProgram) -> tuple[RankCall, ...]:
    """Return the backward pass of a micro-batch: each layer is recomputed before its gradients.

    Where parameters are gathered unit by unit, a layer's recomputation follows its gather, so that the next gather has
    both to hide under.
    """
    calls = interleaved_backward(without_sends(program.backward), program.weight)
    if not program.recomputed:
        return calls
    again = [replace(call, name=f"{RECOMPUTED}{call.name}") for call in program.recomputed]
    starts = [
        place
        for place, call in enumerate(calls)
        if call.name == "layer.parameters" and call.transfer and call.transfer.kind == "all_gather"
    ]
    if not starts or len(again) % len(starts):
        return (*again, *calls)
    share, order, place = len(again) // len(starts), list[RankCall](), 0
    for layer, start in enumerate(starts):
        order += calls[place : start + 1]
        order += again[layer * share : (layer + 1) * share]
        place = start + 1
    return (*order, *calls[place:])


def with_reductions(calls: Sequence[RankCall], gradient: Sequence[RankCall]) -> tuple[RankCall, ...]:
    """Return the calls of a backward pass with reductions beside the queue where their bytes are complete.

    Gradients become ready in proportion to the calls of the pass. Reductions in the queue follow the pass.

    >>> from nearpeak.core.systems.rank_program import Transfer
    >>> product = RankCall(name="mlp")
    >>> bucket = RankCall(name="bucket", transfer=Transfer(kind="all_reduce", bytes=8, dim="dp"), is_beside=True)
    >>> [call.name for call in with_reductions([product] * 4, [bucket] * 2)]
    ['mlp', 'mlp', 'bucket', 'mlp', 'mlp', 'bucket']
    """
    beside = [call for call in gradient if call.is_beside]
    mixed, place = list[RankCall](), 0
    for call, until in zip(beside, _shares(beside, len(calls)), strict=True):
        mixed += calls[place:until]
        mixed.append(call)
        place = until
    return (*mixed, *calls[place:], *(call for call in gradient if not call.is_beside))


def with_gathers(calls: Sequence[RankCall], gathers: Sequence[RankCall]) -> tuple[RankCall, ...]:
    """Return the calls of a forward pass with gathers of updated parameters before what needs them.

    >>> from nearpeak.core.systems.rank_program import Transfer
    >>> product = RankCall(name="mlp")
    >>> bucket = RankCall(name="bucket", transfer=Transfer(kind="all_gather", bytes=8, dim="dp"), is_beside=True)
    >>> [call.name for call in with_gathers([product] * 4, [bucket] * 2)]
    ['bucket', 'mlp', 'mlp', 'bucket', 'mlp', 'mlp']
    """
    backwards = with_reductions(calls[::-1], [replace(call, is_beside=True) for call in gathers[::-1]])
    return backwards[::-1]


def _shares(calls: Sequence[RankCall], count: int) -> list[int]:
    """Return how many of `count` calls have run when the bytes of each collective are complete."""
    sizes = [call.transfer.bytes * call.count if call.transfer else 0 for call in calls]
    total, ready, places = sum(sizes) or 1, 0, list[int]()
    for size in sizes:
        ready += size
        places.append(round(count * ready / total))
    return places
