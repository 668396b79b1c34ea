"""Predicted time of a model that runs partly in an engine: pieces, nodes left outside, and copies at borders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from nearpeak.base.identity_key import Same
from nearpeak.conversion.convex_pieces import Positions, convex_pieces
from nearpeak.conversion.engine_parts import NOTHING, Interval, PlanTime
from nearpeak.conversion.epilogues import epilogues, reader_counts
from nearpeak.conversion.model_graph import ModelGraph
from nearpeak.core.answers.step_prediction import CallPrediction
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError
from nearpeak.frontends.onnx.onnx_file import VIEWS
from nearpeak.ops import case as case_of
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.execution_modes import saved_s
from nearpeak.prediction.fused_calls import fused_calls
from nearpeak.prediction.host_costs import FRAMEWORK, GRAPH_LAUNCH, LAUNCH, LIBRARY, HostCost
from nearpeak.prediction.model_choice import model_for
from nearpeak.prediction.step_time import gap_of

LAYOUT_AXES = 4
"""Axes from which engines keep tensors in a layout of their own, which a border converts."""
_ATEN_VIEWS = frozenset({"aten.alias", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze", "aten.view"})
"""Operators of PyTorch that only rename their operand."""
_NONE = HostCost(0.0, 0.0, 0.0)
_EAGER_CALL = HostCost(*(sum(ends) for ends in zip(FRAMEWORK, LIBRARY, LAUNCH, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHost:
    """How a host drives engines and the calls between them."""

    engine: HostCost = GRAPH_LAUNCH
    """Start of an engine."""
    left_piece: HostCost = _NONE
    """Start of a stretch of nodes outside of engines."""
    left_call: HostCost = _EAGER_CALL
    """Start of a call outside of engines."""
    runs_ahead: bool = True
    """Whether the host issues work ahead of the device, so that the slower of the two decides."""
    fuses_neighbours: bool = True
    """Whether engines compute pointwise neighbours in one kernel, apart from epilogues of products."""
    copies_all: bool = False
    """Whether each tensor that an engine or a stretch hands over is copied besides, whatever its layout."""


SERIAL = EngineHost(engine=FRAMEWORK, left_call=FRAMEWORK, runs_ahead=False)
"""Host of a device that is no GPU: it waits for each piece and call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which nodes run in engines."""

    taken: tuple[bool, ...]
    """For each node, whether it is inside."""
    plugin: Positions = ()
    """Nodes inside that are kernels of a plug-in, which fuse with nothing."""


class PlanCosts:
    """Predictor of plans of one model on one device; it remembers the times of pieces."""

    def __init__(self, graph: ModelGraph, target: Target, host: EngineHost = EngineHost()) -> None:
        """Start with nothing predicted."""
        self.graph, self.target, self.host = graph, target, host
        self._readers = reader_counts(graph.workload.calls)
        self._axes = _layout_axes(graph)
        self._calls: dict[int, tuple[float, CallPrediction] | None] = {}
        self._intervals: dict[int, Interval] = {}
        self._plans: dict[Split, PlanTime] = {}
        self._pieces: dict[Positions, Interval] = {}
        self._copies: dict[tuple[int, str], Interval] = {}

    def plan(self, split: Split) -> PlanTime:
        """Return the predicted time of one run."""
        if split not in self._plans:
            self._plans[split] = self._plan(split)
        return self._plans[split]

    def _plan(self, split: Split) -> PlanTime:
        pieces = pieces_of(self.graph, split.taken)
        engine, left, calls, plugin = NOTHING, NOTHING, 0, set(split.plugin)
        for nodes in pieces:
            is_engine = split.taken[nodes[0]]
            alone = [node for node in nodes if not is_engine or node in plugin]
            loose = self.positions(alone)
            if is_engine:
                engine = engine + self._fused(self.positions([n for n in nodes if n not in plugin]))
                engine = engine + self.unfused(loose)
            else:
                left, calls = left + self.unfused(loose), calls + len(loose)
        engines = sum(split.taken[nodes[0]] for nodes in pieces)
        border = self._border(split)
        host = _host(self.host, engines, len(pieces) - engines, calls)
        device = engine + left + border
        return PlanTime(
            total=_slower(device, host) if self.host.runs_ahead else device + host, engine=engine, left=left,
            border=border, host=host, piece_count=engines,
        )  # fmt: skip

    def positions(self, nodes: Sequence[int]) -> Positions:
        """Return the calls of some nodes in order."""
        return tuple(sorted(position for node in nodes for position in self.graph.calls[node]))

    def piece(self, nodes: Sequence[int], *, is_engine: bool) -> Interval:
        """Return the device time of a piece."""
        return self._fused(self.positions(nodes)) if is_engine else self.unfused(self.positions(nodes))

    def unfused(self, positions: Sequence[int]) -> Interval:
        """Return the device time of calls that run one by one."""
        times = [self._interval(position) for position in positions]
        return Interval(
            low_s=sum(time.low_s for time in times), time_s=sum(time.time_s for time in times),
            high_s=sum(time.high_s for time in times),
        )  # fmt: skip

    def bound_s(self, nodes: Sequence[int]) -> float:
        """Return the sum of the bounds of the calls of some nodes."""
        known = [(position, self.call(position)) for position in self.positions(nodes)]
        return sum(item[0] * self.graph.workload.calls[position].call_count for position, item in known if item)

    def call(self, position: int) -> tuple[float, CallPrediction] | None:
        """Return bound and prediction of a call; none where no rule or model covers it."""
        if position not in self._calls:
            case = self.graph.workload.calls[position].case
            try:
                prediction = None if case is None else predict_case(case, self.target)
            except NotModelledError:
                prediction = None
            if case is None or prediction is None:
                self._calls[position] = None
            else:
                gap_s = gap_of(prediction, model_for(case, self.target), prediction.bound_s)
                self._calls[position] = (
                    prediction.bound_s,
                    CallPrediction(
                        time_s=prediction.time_s, low_s=prediction.low_s, high_s=prediction.high_s, gap_s=gap_s
                    ),
                )
        return self._calls[position]

    def _interval(self, position: int) -> Interval:
        if position not in self._intervals:
            known = self.call(position)
            self._intervals[position] = NOTHING if known is None else Interval(
                low_s=known[1].low_s, time_s=known[1].time_s, high_s=known[1].high_s
            ).times(self.graph.workload.calls[position].call_count)  # fmt: skip
        return self._intervals[position]

    def _fused(self, positions: Positions) -> Interval:
        """Return the device time of the calls of one engine: epilogues in products, neighbours in one kernel."""
        if positions not in self._pieces:
            fused = epilogues(self.graph.workload, positions, self._readers)
            rest = fused.rest(positions)
            total = self.unfused(rest)
            for position, share in fused.shares.items():
                total = total + self._interval(position).times(share)
            for group in (
                fused_calls(_part(self.graph.workload, rest, self._readers))
                if self.host.fuses_neighbours and len(rest) > 1
                else ()
            ):
                members = [known for place in group.positions if (known := self.call(rest[place])) is not None]
                if len(members) > 1:
                    whole = Interval(
                        low_s=sum(call.low_s for _, call in members), time_s=sum(call.time_s for _, call in members),
                        high_s=sum(call.high_s for _, call in members),
                    )  # fmt: skip
                    total = total + whole.times(-sum(saved_s(group, members).values()) / whole.time_s)
            self._pieces[positions] = total
        return self._pieces[positions]

    def _border(self, split: Split) -> Interval:
        """Return the device time of converting the tensors that cross between pieces."""
        total = NOTHING
        for name in _partition(Same(self.graph), split.taken).crossings:
            copies = self.host.copies_all + (self._axes.get(name, 0) >= LAYOUT_AXES)
            if copies:
                total = total + self.copy_time(name).times(copies)
        return total

    def copy_time(self, name: str) -> Interval:
        """Return the device time of copying a tensor; nothing where its size is unknown."""
        tensor = self.graph.tensors.get(name)
        if tensor is None or not tensor.elements:
            return NOTHING
        key = tensor.elements, tensor.dtype
        if key not in self._copies:
            try:
                prediction = predict_case(case_of("copy", elements=tensor.elements, dtype=tensor.dtype), self.target)
                self._copies[key] = Interval(low_s=prediction.low_s, time_s=prediction.time_s, high_s=prediction.high_s)
            except NotModelledError:
                self._copies[key] = NOTHING
        return self._copies[key]


def with_least(graph: ModelGraph, taken: Sequence[bool], least_count: int) -> tuple[bool, ...]:
    """Return which nodes are inside after engines of fewer than `least_count` nodes are left out."""
    small = {
        node for piece in pieces_of(graph, taken) if taken[piece[0]] and len(piece) < least_count for node in piece
    }  # fmt: skip
    return tuple(is_taken and node not in small for node, is_taken in enumerate(taken))


def pieces_of(graph: ModelGraph, taken: Sequence[bool]) -> tuple[Positions, ...]:
    """Return the pieces of the nodes that run, by position; nodes known when the engine is built are part of none."""
    return _partition(Same(graph), tuple(taken)).pieces


def crossing_tensors(graph: ModelGraph, taken: Sequence[bool]) -> tuple[str, ...]:
    """Return the tensors that engines hand over or take, each once."""
    return tuple(dict.fromkeys(_partition(Same(graph), tuple(taken)).crossings))


class _Partition(NamedTuple):
    """Pieces of a split, and tensors that cross between them."""

    pieces: tuple[Positions, ...]
    crossings: tuple[str, ...]  # once for each engine that writes or reads it


@lru_cache(maxsize=256)  # the same splits are priced on several devices
def _partition(same: "Same[ModelGraph]", taken: tuple[bool, ...]) -> _Partition:
    graph = same.held
    running = [node for node, is_static in enumerate(graph.is_static) if not (is_static and taken[node])]
    places = {node: place for place, node in enumerate(running)}
    links = [[places[source] for source in graph.links[node] if source in places] for node in running]
    pieces = convex_pieces(links, [taken[node] for node in running])
    named = tuple(tuple(running[place] for place in piece) for piece in pieces)
    return _Partition(named, tuple(name for name, _ in dict.fromkeys(_crossings(graph, named, taken))))


def _crossings(
    graph: ModelGraph, pieces: Sequence[Sequence[int]], taken: Sequence[bool]
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """Yield each tensor that crosses between pieces with the engines that write and read it."""
    homes = {node: number for number, nodes in enumerate(pieces) for node in nodes}
    makers = {name: node for node in homes for name in graph.outputs[node] if name}
    for node, home in homes.items():
        for name in graph.inputs[node]:
            maker = makers.get(name, -1)
            if maker >= 0 and homes[maker] != home and name not in graph.values:
                yield from ((name, homes[end]) for end in (maker, node) if taken[end])


def _layout_axes(graph: ModelGraph) -> Mapping[str, int]:
    """Return the most axes that each tensor has under any of its names: views keep what a border converts."""
    base: dict[str, str] = {}
    axes: dict[str, int] = {}
    for read, made, kind in zip(graph.inputs, graph.outputs, graph.kinds, strict=True):
        for name in made:
            base[name] = base.get(read[0], read[0]) if (kind in VIEWS or kind in _ATEN_VIEWS) and read else name
    for name, tensor in graph.tensors.items():
        root = base.get(name, name)
        axes[root] = max(axes.get(root, 0), len(tensor.shape))
    return {name: axes.get(base.get(name, name), 0) for name in graph.tensors}


def _part(workload: Workload, positions: Sequence[int], readers: Mapping[int, int]) -> Workload:
    """Return some calls of a workload as one of its own, whose outputs others need."""
    calls = tuple(workload.calls[position] for position in positions)
    inside = reader_counts(calls)
    buffers = list(workload.buffers)
    for buffer in {use.buffer for call in calls for use in call.writes}:
        if readers.get(buffer, 0) > inside.get(buffer, 0):
            buffers[buffer] = replace(buffers[buffer], kind="output")
    return replace(workload, calls=calls, buffers=tuple(buffers), groups=(), known=(), guessed=())


def _host(host: EngineHost, engines: int, left_pieces: int, left_calls: int) -> Interval:
    costs = ((host.engine, engines), (host.left_piece, left_pieces), (host.left_call, left_calls))
    low_s, time_s, high_s = (sum(cost[end] * count for cost, count in costs) for end in range(3))
    return Interval(low_s=low_s, time_s=time_s, high_s=high_s)


def _slower(device: Interval, host: Interval) -> Interval:
    return Interval(
        low_s=max(device.low_s, host.low_s), time_s=max(device.time_s, host.time_s),
        high_s=max(device.high_s, host.high_s),
    )  # fmt: skip


def without_kernels(costs: PlanCosts, nodes: Sequence[int]) -> Mapping[str, int]:
    """Return the nodes whose time is in no figure, by operator type."""
    counts: dict[str, int] = {}
    for node in nodes:
        if any(costs.call(position) is None for position in costs.graph.calls[node]):
            counts[costs.graph.kinds[node]] = counts.get(costs.graph.kinds[node], 0) + 1
    return counts
