"""Lowering of a captured step to the calls that an inference engine runs, with their formats."""

import dataclasses
from collections.abc import Mapping, Set

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.engine_choice import EngineChoice
from nearpeak.core.work.workload import Call, Use, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.inference_engine.engine_formats import narrowed, with_formats
from nearpeak.frontends.inference_engine.engine_rules import (
    RULES,
    EngineRules,
    changes_format,
    folds,
    pooled_mean,
    takes_epilogue,
)
from nearpeak.frontends.inference_engine.kernel_group import KernelGroup


def lowered(workload: Workload, engine: EngineChoice) -> Workload:
    """Return the step as an engine runs it: fewer calls, in the formats that it builds with.

    Batch normalisation, bias, activation, residual addition and changes of format go into the product that writes their
    operand; identity and reshape are no calls; pooling, softmax and resizing stay. An operator between dequantisation
    and quantisation works on the narrow format.

    Raises:
        SpecError: the step is none of inference.
    """
    if workload.step == "train" or any(call.phase != "forward" for call in workload.calls):
        raise SpecError(f"{workload.name}: --engine {engine.words} runs a forward step, and this one is trained")
    rules = RULES[engine.name]
    lowering = _Lowering(workload, rules)
    for position, call in enumerate(workload.calls):
        lowering.visit(position, call)
    groups, scales = narrowed(lowering.groups, lowering.narrow, workload.buffers)
    if engine.dtype:
        groups, scales = with_formats(groups, scales, engine.dtype, workload.buffers)
    return _rebuilt(workload, groups, scales, engine, lowering.sources)


class _Lowering:
    """Visits the calls in order and gathers those that become one kernel."""

    def __init__(self, workload: Workload, rules: EngineRules) -> None:
        self.groups: list[KernelGroup] = []
        self.narrow: dict[int, str] = {}
        self._rules, self._buffers = rules, workload.buffers
        self._hosts: dict[int, int] = {}  # storage: group in whose kernel its last writer is, where that can grow
        self._writers: dict[int, int] = {}
        self.sources: dict[int, tuple[Use, ...]] = {}  # storage: what is read instead of it

    def visit(self, position: int, call: Call) -> None:
        """Drop the call, fold it into a group, or begin a group with it."""
        reads = tuple(new for use in call.reads for new in self._resolved(use))
        if changes_format(call) and call.writes and reads:
            self._change_format(call, reads)
        elif (place := self._host(call, reads)) is not None:
            self.groups[place].fold(reads, call.writes)
            for use in call.writes:
                self._note(use.buffer, place, can_grow=True)
        else:
            call = dataclasses.replace(call, reads=reads)
            pooling = pooled_mean(call) if self._rules.pools_means else None
            if pooling is not None:
                call = dataclasses.replace(call, case=pooling, form=None, storages=())
            self.groups.append(KernelGroup(position, call))
            can_grow = call.case is not None and call.call_count == 1 and takes_epilogue(call.case, self._rules)
            for use in call.writes:
                self._note(use.buffer, len(self.groups) - 1, can_grow=can_grow)

    def _change_format(self, call: Call, reads: tuple[Use, ...]) -> None:
        """Let readers of the result read the operand, and note the narrow format on either side."""
        assert call.case is not None
        operand = max(reads, key=lambda use: use.bytes)
        formats = dict(call.case.dtypes)
        narrow = {"quantise": formats.get("out_dtype"), "dequantise": formats["dtype"], "fake_quantise": "int8"}
        name = narrow.get(call.case.op)
        if name is not None and dtype_of(name).bits_count == 8:
            self.narrow[operand.buffer] = name
        for use in call.writes:
            if use.buffer != operand.buffer:
                self._forget(use.buffer)
                self.sources[use.buffer] = (operand,)

    def _host(self, call: Call, reads: tuple[Use, ...]) -> int | None:
        """Return the group into which a call folds; none where it is a kernel of its own."""
        if call.case is None or not call.writes or not folds(call.case, self._rules):
            return None
        formats = dict(call.case.dtypes)
        bits = dtype_of(formats.get("out_dtype", formats["dtype"])).bits_count
        elements = call.writes[0].bytes * 8 // bits
        places = [self._hosts[use.buffer] for use in reads if use.buffer in self._hosts]
        fitting = [place for place in places if self.groups[place].elements == elements]
        latest = max((self._writers.get(use.buffer, -1) for use in reads), default=-1)
        return max(fitting) if fitting and max(fitting) >= latest else None

    def _note(self, buffer: int, place: int, *, can_grow: bool) -> None:
        self._forget(buffer)
        self._writers[buffer] = place
        if can_grow:
            self._hosts[buffer] = place

    def _forget(self, buffer: int) -> None:
        self._hosts.pop(buffer, None)
        self.sources.pop(buffer, None)

    def _resolved(self, use: Use) -> tuple[Use, ...]:
        """Return what is read where a call reads a storage that the engine does not have."""
        if use.buffer not in self.sources:
            return (use,)
        sources = self.sources[use.buffer]
        share = min(1.0, use.bytes / max(1, self._buffers[use.buffer].bytes))
        return tuple(dataclasses.replace(source, bytes=int(source.bytes * share)) for source in sources)


def _rebuilt(
    workload: Workload, groups: list[KernelGroup], scales: dict[int, float], engine: EngineChoice,
    sources: Mapping[int, tuple[Use, ...]],
) -> Workload:  # fmt: skip
    """Return the workload of the groups, its storages in their new formats."""
    written = {use.buffer for group in groups for use in group.call.writes}
    read = {use.buffer for group in groups for use in group.call.reads}
    moved = _moved_outputs(workload, sources, written)
    read_buffers = (
        read | moved | {place for place, buffer in enumerate(workload.buffers) if buffer.kind in ("output", "kv_cache")}
    )
    calls = tuple(group.finished(read_buffers, scales) for group in groups)
    places = {group.position: place for place, group in enumerate(groups) if group.is_unchanged}
    buffers = [
        dataclasses.replace(
            buffer, bytes=int(buffer.bytes * scales.get(place, 1.0)), kind="output" if place in moved else buffer.kind
        )
        for place, buffer in enumerate(workload.buffers)
    ]
    removed = len(workload.calls) - len(calls)
    return dataclasses.replace(
        workload, calls=calls, buffers=tuple(buffers), groups=(),
        returned=() if engine.dtype or moved else workload.returned,
        known=tuple(item._replace(call=places[item.call]) for item in workload.known if item.call in places),
        guessed=tuple(places[place] for place in workload.guessed if place in places),
        origin={**workload.origin, "engine": engine.words},
        assumptions=(
            *workload.assumptions,
            f"{engine.words}: {removed} calls are folded into others or removed, {len(calls)} kernels stay "
            f"({RULES[engine.name].source}).",
        ),
    )  # fmt: skip


def _moved_outputs(workload: Workload, sources: Mapping[int, tuple[Use, ...]], written: Set[int]) -> set[int]:
    """Return the storages that hold what the step returns where the call that wrote the returned one is removed."""
    waiting = [
        use.buffer
        for place, buffer in enumerate(workload.buffers) if buffer.kind == "output" and place not in written
        for use in sources.get(place, ())
    ]  # fmt: skip
    return {place for place in waiting if place in written}
