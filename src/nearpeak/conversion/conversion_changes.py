"""Changes of a file or of its conversion that would save time, with what each saves on each device."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nearpeak.conversion.capability_table import CapabilityTable
from nearpeak.conversion.engine_parts import (
    Change,
    Interval,
    JudgedNode,
    PlanTime,
    TargetPlan,
)
from nearpeak.conversion.group_norms import NATIVE_OPSET, with_native_norms
from nearpeak.conversion.model_graph import ModelGraph
from nearpeak.conversion.plan_cost import PlanCosts, Split, pieces_of, with_least
from nearpeak.frontends.onnx.model_shapes import imported_onnx
from nearpeak.units import counted, show

MOST_SIZES = 6
"""Least sizes of an engine that are tried."""


def changes_of(
    table: CapabilityTable, nodes: Sequence[JudgedNode], taken: tuple[bool, ...], costs: Sequence[PlanCosts],
    plans: Sequence[TargetPlan],
) -> tuple[Change, ...]:  # fmt: skip
    """Return the changes that would help, the largest expected gain on the first device first."""
    if not costs:
        return ()
    graph = costs[0].graph
    candidates = [
        *_folds(nodes, taken, costs), *_casts(nodes, taken, costs), *_inlined(table, graph, taken, costs),
        *_least_sizes(graph, taken, costs), *_plugins(plans), *_native_norms(table, graph, taken, costs),
    ]  # fmt: skip
    first = costs[0].target.name
    useful = [
        change for change in candidates  # a plug-in is an answer in any case: at which time it would pay
        if change.kind == "plug-in" or any(gain.high_s > 0 for gain in change.gains.values())
    ]  # fmt: skip
    return tuple(sorted(useful, key=lambda change: -change.gains[first].time_s))


def _gains(
    costs: Sequence[PlanCosts], taken: tuple[bool, ...], after: Callable[[PlanCosts], PlanTime]
) -> Mapping[str, Interval]:
    """Return the time that another plan saves on each device."""
    return {cost.target.name: cost.plan(Split(taken=taken)).total.less(after(cost).total) for cost in costs}


def _split_gains(costs: Sequence[PlanCosts], taken: tuple[bool, ...], split: Split) -> Mapping[str, Interval]:
    return _gains(costs, taken, lambda cost: cost.plan(split))


def _also(taken: tuple[bool, ...], nodes: Sequence[int]) -> Split:
    more = set(nodes)
    return Split(taken=tuple(is_taken or node in more for node, is_taken in enumerate(taken)))


def _named(nodes: Sequence[JudgedNode], chosen: Sequence[int]) -> str:
    """Return the first nodes in words."""
    names = [f"{nodes[node].kind} {nodes[node].key}" for node in chosen[:2]]
    return ", ".join(names) + (f" and {len(chosen) - 2} more" if len(chosen) > 2 else "")


def _folds(nodes: Sequence[JudgedNode], taken: tuple[bool, ...], costs: Sequence[PlanCosts]) -> Iterator[Change]:
    """Yield the folding of constants: operands that follow from shapes, but are not stored."""
    graph = costs[0].graph
    chosen = [
        node for node, judged in enumerate(nodes)
        if not taken[node] and (judged.verdict.cure == "fold" or graph.is_static[node])
    ]  # fmt: skip
    if chosen:
        text = f"fold constants before the conversion: {_named(nodes, chosen)}"
        yield Change(kind="fold", text=text, gains=_split_gains(costs, taken, _also(taken, chosen)))


def _casts(nodes: Sequence[JudgedNode], taken: tuple[bool, ...], costs: Sequence[PlanCosts]) -> Iterator[Change]:
    """Yield casts of operands and results, which are copies at worst; integers above 2^24 are not exact in fp32."""
    chosen = [node for node, judged in enumerate(nodes) if not taken[node] and judged.verdict.cure == "cast"]
    if not chosen:
        return
    split = _also(taken, chosen)

    def after(cost: PlanCosts) -> PlanTime:
        plan, graph = cost.plan(split), cost.graph
        names = [name for node in chosen for name in (*graph.inputs[node], *graph.outputs[node]) if name]
        copies = [cost.copy_time(name) for name in names if name not in graph.stored]
        return replace(plan, total=sum(copies, plan.total))

    text = f"cast to fp32 and back (exact below 2^24): {_named(nodes, chosen)}"
    yield Change(kind="cast", text=text, gains=_gains(costs, taken, after))


def _inlined(
    table: CapabilityTable, graph: ModelGraph, taken: tuple[bool, ...], costs: Sequence[PlanCosts]
) -> Iterator[Change]:
    """Yield operators that the standard defines by simpler ones, all of which the engine takes."""
    if not graph.protos:
        return
    onnx = imported_onnx()
    for kind in dict.fromkeys(kind for node, kind in enumerate(graph.kinds) if not taken[node]):
        if not onnx.defs.has(kind, graph.opset_count) or kind in table.formats:
            continue
        schema = onnx.defs.get_schema(kind, graph.opset_count)
        inner = {node.op_type for node in schema.function_body.node} if schema.has_function else set()
        if inner and inner.issubset(table.formats):
            text = f"write {kind} out as the standard defines it ({', '.join(sorted(inner))})"
            chosen = [node for node, node_kind in enumerate(graph.kinds) if node_kind == kind]
            yield Change(kind="inline", text=text, gains=_split_gains(costs, taken, _also(taken, chosen)))


def _least_sizes(graph: ModelGraph, taken: tuple[bool, ...], costs: Sequence[PlanCosts]) -> Iterator[Change]:
    """Yield the least size of an engine that saves the most on the first device, if one does."""
    sizes = sorted({len(piece) for piece in pieces_of(graph, taken) if taken[piece[0]]})[:MOST_SIZES]
    best: tuple[float, int, Mapping[str, Interval]] | None = None
    for size in sizes[:-1] or sizes:
        fewer = with_least(graph, taken, size + 1)
        if fewer == taken or not any(fewer):
            continue
        gains = _split_gains(costs, taken, Split(taken=fewer))
        gain_s = gains[costs[0].target.name].time_s
        if gain_s > 0 and (best is None or gain_s > best[0]):
            best = gain_s, size + 1, gains
    if best is not None:
        yield Change(kind="least", text=f"leave engines of fewer than {best[1]} nodes out (--least)", gains=best[2])


def _plugins(plans: Sequence[TargetPlan]) -> Iterator[Change]:
    for answer in plans[0].plugins:
        gains = {plan.target: other.gain for plan in plans for other in plan.plugins if other.kind == answer.kind}
        limit = "" if answer.break_even_s is None else f"; pays where a kernel takes < {show(answer.break_even_s, 's')}"
        verdict = f"{answer.verdict} on {plans[0].target}{limit}"
        text = f"a plug-in for {answer.kind} ({counted(answer.node_count, 'node')}): {verdict}"
        yield Change(kind="plug-in", text=text, gains=gains)


def _native_norms(
    table: CapabilityTable, graph: ModelGraph, taken: tuple[bool, ...], costs: Sequence[PlanCosts]
) -> Iterator[Change]:
    """Yield the export of group normalisation as one node, which is native in engines that list it."""
    if "GroupNormalization" not in table.formats or graph.opset_count >= NATIVE_OPSET:
        return
    native, norms = with_native_norms(graph)
    if not norms:
        return
    split = _also(taken, [node for norm in norms for node in norm.nodes])
    gains = {}
    for cost in costs:
        priced = PlanCosts(native, cost.target, cost.host)
        fused = cost.plan(Split(taken=taken)).total.less(priced.plan(split).total)
        apart_s = cost.unfused(cost.positions([node for norm in norms for node in norm.nodes])).time_s
        one_s = priced.unfused(priced.positions([norm.nodes[1] for norm in norms])).time_s
        gains[cost.target.name] = replace(
            fused, low_s=min(fused.low_s, fused.time_s), high_s=max(fused.high_s, apart_s - one_s)
        )  # fmt: skip
    covered = table.last_opset_count is None or table.last_opset_count >= NATIVE_OPSET
    proviso = "" if covered else f"; {table.name} is documented to opset {table.last_opset_count} only"
    text = (
        f"export at opset ≥ {NATIVE_OPSET}: {counted(len(norms), 'group normalisation')} of "
        f"{len(norms[0].nodes)} nodes each becomes one GroupNormalization{proviso}"
    )
    yield Change(kind="opset", text=text, gains=gains)
