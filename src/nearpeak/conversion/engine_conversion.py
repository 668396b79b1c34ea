"""Conversion coverage by an engine that need not be installed, with the predicted cost of its breaks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from nearpeak.conversion.capability_table import CapabilityTable
from nearpeak.conversion.conversion_changes import changes_of
from nearpeak.conversion.engine_parts import (
    CONDITIONAL,
    DENIED,
    Break,
    EngineCoverage,
    EnginePiece,
    JudgedNode,
    PluginAnswer,
    TargetPlan,
    Verdict,
)
from nearpeak.conversion.model_graph import ModelGraph, model_graph
from nearpeak.conversion.node_verdicts import verdict_of
from nearpeak.conversion.plan_cost import (
    SERIAL,
    EngineHost,
    PlanCosts,
    Split,
    crossing_tensors,
    pieces_of,
    with_least,
    without_kernels,
)  # fmt: skip
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.ops import work_of

MOST_BREAKS = 24
"""Breaks that are priced one by one; of more, those that cut off the most calls."""


def engine_conversion(
    model: Path | ModelGraph, table: CapabilityTable, targets: Sequence[Target],
    options: CaptureOptions = CaptureOptions(), *,
    without: tuple[str, ...] = (), least_count: int = 1, worth_s: float = 0.0,
    installed: Mapping[int, str] | None = None,
) -> EngineCoverage:  # fmt: skip
    """Return what the engine takes of a model, and what the rest costs; nothing is executed.

    Args:
        model: an ONNX file, or the graph of a model.
        without: operator types that are treated as denied.
        least_count: least nodes of an engine; those of smaller ones are left outside.
        worth_s: time of a run that a plug-in must save to pay.
        installed: positions of nodes that the installed engine refuses, with reasons; it overrides the table.

    Raises:
        SpecError: the file is missing or leaves an input open, or has no node of a type that is to be left out.
        CaptureError: the file is not a sound ONNX model.
    """
    graph = model if isinstance(model, ModelGraph) else model_graph(model, options)
    if unknown := [name for name in without if name not in graph.kinds]:
        known = ", ".join(sorted(set(graph.kinds)))
        raise SpecError(f"{graph.model}: has no node of type {unknown[0]!r} to leave out; it has {known}")
    nodes = _judged(table, graph, without, installed)
    taken = with_least(graph, [node.is_taken for node in nodes], least_count)
    pieces = pieces_of(graph, taken)
    crossing = crossing_tensors(graph, taken)
    sizes = [graph.tensors[name].bytes if name in graph.tensors else None for name in crossing]
    costs = [PlanCosts(graph, target, EngineHost() if target.kind == "gpu" else SERIAL) for target in targets]
    plans = tuple(_target_plan(cost, nodes, taken, pieces, worth_s) for cost in costs)
    source = table.source if installed is None else f"{table.name} installed on this machine"
    return EngineCoverage(
        model=graph.model, engine=table.name, source=source, opset=graph.opset, nodes=nodes,
        pieces=tuple(
            EnginePiece(
                is_converted=taken[piece[0]], keys=tuple(graph.keys[node] for node in piece),
                kinds=dict(Counter(graph.kinds[node] for node in piece).most_common()),
            ) for piece in _ordered(graph, pieces)
        ),
        boundary_count=len(crossing),
        boundary_bytes=None if None in sizes else sum(size for size in sizes if size is not None), plans=plans,
        breaks=_breaks(graph, costs, taken, pieces), changes=changes_of(table, nodes, taken, costs, plans),
        notes=tuple(_notes(table, graph, nodes)),
    )  # fmt: skip


def _judged(
    table: CapabilityTable, graph: ModelGraph, without: Sequence[str], installed: Mapping[int, str] | None
) -> tuple[JudgedNode, ...]:
    judged, flops = [], dict[Case, int]()
    for node, (key, kind) in enumerate(zip(graph.keys, graph.kinds, strict=True)):
        if kind in without:
            verdict = Verdict(verdict=DENIED, reason="left out on request")
        elif installed is not None:
            refused = installed.get(node)
            verdict = Verdict(verdict="supported" if refused is None else DENIED, reason=refused or "")
        else:
            verdict = verdict_of(table, graph, node)
        calls = [graph.workload.calls[position] for position in graph.calls[node]]
        for case in {call.case for call in calls if call.case is not None} - set(flops):
            flops[case] = int(sum(work_of(case).flop.values()))
        flop = sum(flops[call.case] * call.call_count for call in calls if call.case is not None)
        judged.append(JudgedNode(key=key, kind=kind, verdict=verdict, is_static=graph.is_static[node], flop=flop))
    return tuple(judged)


def _ordered(graph: ModelGraph, pieces: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the pieces in an order in which they can run; of those that can, the one with the first node."""
    homes = {node: number for number, nodes in enumerate(pieces) for node in nodes}
    needs = [
        {homes[source] for node in nodes for source in graph.links[node] if source in homes} - {number}
        for number, nodes in enumerate(pieces)
    ]
    done: dict[int, None] = {}
    waiting = list(range(len(pieces)))
    while waiting:
        number = next(number for number in waiting if needs[number] <= done.keys())
        done[number] = None
        waiting.remove(number)
    return [pieces[number] for number in done]


def _target_plan(
    costs: PlanCosts, nodes: Sequence[JudgedNode], taken: tuple[bool, ...], pieces: Sequence[Sequence[int]],
    worth_s: float,
) -> TargetPlan:  # fmt: skip
    graph = costs.graph
    everything = range(len(graph.keys))
    as_is = costs.plan(Split(taken=taken))
    whole = costs.plan(Split(taken=(True,) * len(taken)))
    firm = tuple(
        is_taken and node.verdict.verdict != CONDITIONAL for node, is_taken in zip(nodes, taken, strict=True)
    )  # fmt: skip
    base = TargetPlan(
        target=costs.target.name, as_is=as_is, whole=whole, refused=None, plugins=(),
        pieces=tuple(costs.piece(p, is_engine=taken[p[0]]) for p in _ordered(graph, pieces)),
        unpredicted=without_kernels(costs, everything),
    )  # fmt: skip
    kinds = dict.fromkeys(graph.kinds[node] for piece in pieces for node in piece if not taken[node])
    plugins = [_plugin(costs, base, taken, kind, worth_s) for kind in kinds]
    return TargetPlan(
        target=base.target, as_is=as_is, whole=whole, pieces=base.pieces, unpredicted=base.unpredicted,
        refused=costs.plan(Split(taken=firm)) if firm != taken else None,
        plugins=tuple(sorted(plugins, key=lambda answer: -answer.gain.time_s)),
    )  # fmt: skip


def _plugin(costs: PlanCosts, base: TargetPlan, taken: tuple[bool, ...], kind: str, worth_s: float) -> PluginAnswer:
    """Return what kernels for all nodes of a kind inside engines would change."""
    graph = costs.graph
    mine = tuple(node for node, node_kind in enumerate(graph.kinds) if node_kind == kind and not taken[node])
    split = Split(taken=tuple(is_taken or node in mine for node, is_taken in enumerate(taken)), plugin=mine)
    plan = costs.plan(split)
    gain = base.as_is.total.less(plan.total)
    positions = costs.positions(mine)
    count = sum(graph.workload.calls[position].call_count for position in positions)
    is_known = bool(count) and all(costs.call(position) is not None for position in positions)
    kernels_s = costs.unfused(positions).time_s
    rest_s = plan.engine.time_s + plan.left.time_s + plan.border.time_s - kernels_s
    limit_s = (base.as_is.total.time_s - rest_s) / count if is_known else 0.0
    lost_s = base.as_is.total.time_s - base.whole.total.time_s
    verdict = "pays" if gain.low_s > worth_s else "does not pay" if gain.high_s <= worth_s else "open"
    return PluginAnswer(
        kind=kind, node_count=len(mine), plan=plan, gain=gain, call_s=kernels_s / max(1, count),
        bound_s=costs.bound_s(mine) / len(mine), verdict=verdict if is_known or not count else "open",
        break_even_s=limit_s if limit_s > 0 and plan.host.time_s < base.as_is.total.time_s else None,
        recovered_ratio=gain.time_s / lost_s if lost_s > 0 else None,
    )  # fmt: skip


def _breaks(
    graph: ModelGraph, costs: Sequence[PlanCosts], taken: tuple[bool, ...], pieces: Sequence[Sequence[int]]
) -> tuple[Break, ...]:
    """Return the stretches outside of engines with the time that each costs, the dearest first."""
    left = [piece for piece in pieces if not taken[piece[0]]]
    left.sort(key=lambda piece: -sum(len(graph.calls[node]) for node in piece))
    breaks = []
    before = [cost.plan(Split(taken=taken)).total for cost in costs]
    for piece in left[:MOST_BREAKS]:
        inside = set(piece)
        split = Split(taken=tuple(is_taken or node in inside for node, is_taken in enumerate(taken)))
        savings = {
            cost.target.name: total.less(cost.plan(split).total) for cost, total in zip(costs, before, strict=True)
        }  # fmt: skip
        breaks.append(Break(keys=tuple(graph.keys[node] for node in piece), costs=savings))
    first = costs[0].target.name if costs else ""
    return tuple(sorted(breaks, key=lambda item: -item.costs[first].time_s if costs else 0.0))


def _notes(table: CapabilityTable, graph: ModelGraph, nodes: Sequence[JudgedNode]) -> list[str]:
    """Return what restricts the answer, in sentences."""
    notes = []
    if table.last_opset_count is not None and graph.opset and graph.opset_count > table.last_opset_count:
        notes.append(
            f"The file is of opset {graph.opset}; the table is documented up to {table.last_opset_count}: nodes whose "
            f"definition changed since are conditional."
        )
    conditional = sum(node.verdict.verdict == CONDITIONAL for node in nodes)
    if conditional:
        notes.append(f"Conditional nodes ({conditional}) are planned as converted; what if not stands beside.")
    return notes
