"""Verdicts of a capability table on the nodes of a model."""

from collections.abc import Iterator
from typing import Any

from nearpeak.conversion.capability_table import CapabilityTable
from nearpeak.conversion.engine_parts import CONDITIONAL, DENIED, SUPPORTED, UNKNOWN, VERDICTS, Verdict
from nearpeak.conversion.model_graph import ModelGraph
from nearpeak.conversion.node_conditions import decide, is_foldable
from nearpeak.frontends.onnx.model_shapes import imported_onnx

_CASTABLE = ("fp64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
"""Formats from which a cast to fp32 helps."""


def verdict_of(table: CapabilityTable, graph: ModelGraph, node: int) -> Verdict:
    """Return what the table says about a node: the strictest of its row, opset, formats, conditions and body.

    What the table does not know is `unknown`, never `denied`; what it words and nothing decides is `conditional`.
    """
    kind = graph.kinds[node]
    if kind in table.denied:
        return Verdict(verdict=DENIED, reason=f"{table.name} lists {kind} as not taken")
    if kind not in table.formats:
        return Verdict(verdict=UNKNOWN, reason=f"the table of {table.name} has no row for {kind}")
    findings = [
        *_of_opset(table, graph, kind), *_of_formats(table, graph, node), *_of_conditions(table, graph, node),
        *(_of_bodies(table, graph.protos[node]) if graph.protos else ()),
    ]  # fmt: skip
    if not findings:
        return Verdict(verdict=SUPPORTED)
    worst = max((finding.verdict for finding in findings), key=VERDICTS.index)
    decisive = [finding for finding in findings if finding.verdict == worst]
    cures = {finding.cure for finding in decisive}
    return Verdict(
        verdict=worst, reason="; ".join(dict.fromkeys(finding.reason for finding in decisive)),
        cure=cures.pop() if len(cures) == 1 else "",
    )  # fmt: skip


def _of_opset(table: CapabilityTable, graph: ModelGraph, kind: str) -> Iterator[Verdict]:
    """Yield that the definition of the operator in this opset is none that the table covers."""
    if not graph.opset:
        return
    opset, last = graph.opset_count, table.last_opset_count or graph.opset_count
    if opset > (newest := imported_onnx().defs.onnx_opset_version()):
        reason = f"its definition of opset {opset} is not known; the onnx installed here knows opsets to {newest}"
        yield Verdict(verdict=UNKNOWN, reason=reason)
        return
    edge = min(max(opset, table.first_opset_count), last)
    if opset == edge:
        return
    here, covered = _definition(kind, opset), _definition(kind, edge)
    if here != covered:
        reason = (
            f"its definition of opset {opset} is not that of opset {edge}, up to which {table.name} is documented"
            if opset > edge
            else f"its definition of opset {opset} is older than opset {edge}, from which {table.name} is documented"
        )
        yield Verdict(verdict=CONDITIONAL, reason=reason)


def _definition(kind: str, opset: int) -> tuple[Any, ...] | None:
    """Return operands, results and attributes of an operator; none where an opset has none of this name."""
    onnx = imported_onnx()
    if not onnx.defs.has(kind, opset):
        return None
    schema = onnx.defs.get_schema(kind, opset)
    return tuple(item.name for item in schema.inputs), len(schema.outputs), tuple(sorted(schema.attributes))


def _of_formats(table: CapabilityTable, graph: ModelGraph, node: int) -> Iterator[Verdict]:
    """Yield the number formats of the node's data that the table does not list."""
    kind = graph.kinds[node]
    formats = table.formats[kind]
    names = _data_tensors(table, graph, node)
    if unknown := [name for name in names if name not in graph.tensors]:
        yield Verdict(verdict=CONDITIONAL, reason=f"the number format of {unknown[0]!r} is not known")
    for dtype in sorted({graph.tensors[name].dtype for name in names if name in graph.tensors} - set(formats)):
        if dtype in table.narrowed:
            yield Verdict(verdict=CONDITIONAL, reason=f"{table.name} narrows {dtype}")
        else:
            is_known = table.other_formats != UNKNOWN
            cure = "cast" if is_known and dtype in _CASTABLE and "fp32" in formats else ""
            listed = ", ".join(formats)
            reason = f"{table.name} takes {kind} of {listed}, not {dtype}"
            reason = reason if is_known else f"the table of {table.name} does not say whether {kind} takes {dtype}"
            yield Verdict(verdict=table.other_formats, reason=reason, cure=cure)


def _data_tensors(table: CapabilityTable, graph: ModelGraph, node: int) -> list[str]:
    """Return the tensors whose formats a row is about: by default those of the type of the first result.

    Where no operand shares that type, those of the type of the first operand.
    Of operators of PyTorch, all tensors.
    """
    if not graph.protos:
        return [name for name in (*graph.inputs[node], *graph.outputs[node]) if name]
    proto, kind = graph.protos[node], graph.kinds[node]
    onnx = imported_onnx()
    which = table.typed.get(kind, "")
    if which or not onnx.defs.has(kind, graph.opset_count):
        tensors = {"all": [*proto.input, *proto.output], "outputs": proto.output}.get(which, proto.input[:1])
        return [name for name in tensors if name]
    schema = onnx.defs.get_schema(kind, graph.opset_count)
    operands = _typed(schema.inputs, proto.input)
    results = _typed(schema.outputs, proto.output)
    types = [type_ for _, type_ in operands]
    wanted = results[0][1] if results and results[0][1] in types else next(iter(types), "")
    return [name for name, type_ in (*operands, *results) if type_ == wanted and name]


def _typed(parameters: Any, names: Any) -> list[tuple[str, str]]:
    """Return tensors with the type parameters of their places; those past the last place are of a variadic one."""
    types = [parameter.type_str for parameter in parameters]
    return [(name, types[min(place, len(types) - 1)]) for place, name in enumerate(names) if types]


def _of_conditions(table: CapabilityTable, graph: ModelGraph, node: int) -> Iterator[Verdict]:
    """Yield the conditions that do not hold, or that the file cannot decide."""
    kind = graph.kinds[node]
    for condition in table.conditions.get(kind, ()):
        holds = decide(condition, graph, node)
        if holds is None:
            yield Verdict(
                verdict=CONDITIONAL, reason=f"{kind} of {table.name} {condition.says}; the file does not tell"
            )
        elif not holds:
            cure = "fold" if is_foldable(condition, graph, node) else ""
            yield Verdict(verdict=condition.otherwise, reason=f"{kind} of {table.name} {condition.says}", cure=cure)


def _of_bodies(table: CapabilityTable, proto: Any) -> Iterator[Verdict]:
    """Yield what the table says of the operators inside the bodies of control flow; their tensors are not looked at."""
    waiting = [item.g for item in proto.attribute if item.HasField("g")]
    while waiting:
        for inner in waiting.pop().node:
            kind = inner.op_type if inner.domain in ("", "ai.onnx") else f"{inner.domain}.{inner.op_type}"
            if kind in table.denied:
                yield Verdict(verdict=DENIED, reason=f"its body holds {kind}, which {table.name} lists as not taken")
            elif kind not in table.formats:
                yield Verdict(
                    verdict=UNKNOWN, reason=f"its body holds {kind}, for which the table of {table.name} has no row"
                )
            elif kind in table.conditions:
                yield Verdict(verdict=CONDITIONAL, reason=f"its body holds {kind}, which is taken under conditions")
            waiting += [item.g for item in inner.attribute if item.HasField("g")]
