"""Activation checkpoints of a captured step: blocks keep their inputs and run once more before their gradients."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from nearpeak.core.systems.rank_program import RECOMPUTED
from nearpeak.core.work.workload import Buffer, Call, Use, Workload
from nearpeak.systems.training.programs.captured_step import captured_step

_MADE = ("activation", "output")
"""Kinds of buffers that a forward pass makes."""


def checkpointed_step(workload: Workload, blocks: Sequence[str]) -> Workload:
    """Return a training step whose blocks are checkpointed, as `torch.utils.checkpoint` around each of them runs it.

    What the calls of a block make is dropped after the forward pass, unless calls outside the block need it. Before the
    first gradient of the block its calls run again, up to the last one that makes what a gradient reads (early stop:
    PyTorch 2.13, documentation of torch.utils.checkpoint), into buffers of their own.

    Args:
        blocks: module paths of what is checkpointed as a whole.

    Raises:
        SpecError: no training step of one device, or a block is none of its modules.
        NotModelledError: a call that no operator matches.
    """
    step = captured_step(workload, blocks)
    buffers = list(workload.buffers)
    again: dict[str, list[Call]] = {}
    copies: dict[str, dict[int, int]] = {}
    forward, backward = (_by_block(calls, step.unit_of) for calls in (step.forward, step.backward))
    for block, calls in forward.items():
        made = _made(calls, workload)
        needed = made & {use.buffer for call in backward.get(block, ()) for use in call.reads}
        stop = max((place + 1 for place, call in enumerate(calls) if needed & _written(call)), default=0)
        written = made & {buffer for call in calls[:stop] for buffer in _written(call)}
        copies[block] = {}
        for buffer in sorted(written):
            copies[block][buffer] = len(buffers)
            buffers.append(Buffer(bytes=workload.buffers[buffer].bytes, kind="activation"))
        again[block] = [
            replace(_moved(call, copies[block]), phase="backward", operator=f"{RECOMPUTED}{call.operator}")
            for call in calls[:stop]
        ]
    order: list[Call] = []
    for call in workload.calls:
        block = step.unit_of(call.module) if call.phase == "backward" else ""
        order += again.pop(block, ())
        order.append(_moved(call, copies[block]) if copies.get(block) else call)
    # Positions of calls, by which fusions and known elements are stated, are no longer those of the capture.
    return replace(workload, calls=tuple(order), buffers=tuple(buffers), groups=(), known=(), patterns=(), guessed=())


def _by_block(calls: Iterable[Call], unit_of: Callable[[str], str]) -> dict[str, list[Call]]:
    blocks: dict[str, list[Call]] = {}
    for call in calls:
        if block := unit_of(call.module):
            blocks.setdefault(block, []).append(call)
    return blocks


def _made(calls: Iterable[Call], workload: Workload) -> set[int]:
    """Return the buffers that calls write before they read them: what is read first comes from elsewhere."""
    made: set[int] = set()
    inputs: set[int] = set()
    for call in calls:
        inputs |= {use.buffer for use in call.reads} - made
        made |= {buffer for buffer in _written(call) - inputs if workload.buffers[buffer].kind in _MADE}
    return made


def _written(call: Call) -> set[int]:
    return {use.buffer for use in call.writes}


def _moved(call: Call, copies: Mapping[int, int]) -> Call:
    """Return a call on the copies of buffers."""

    def uses(old: Iterable[Use]) -> tuple[Use, ...]:
        return tuple(replace(use, buffer=copies.get(use.buffer, use.buffer)) for use in old)

    return replace(
        call, reads=uses(call.reads), writes=uses(call.writes),
        storages=tuple(copies.get(buffer, buffer) for buffer in call.storages),
    )  # fmt: skip
