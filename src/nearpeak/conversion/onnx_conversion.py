"""Conversion coverage of a model by ONNX Runtime or torch.compile, and the cost of crossing between pieces."""

import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.folders import keep_compiled_code
from nearpeak.base.input_files import check_file
from nearpeak.conversion.converted_parts import Conversion
from nearpeak.conversion.convex_pieces import convex_pieces
from nearpeak.conversion.onnx_pieces import feeds_of, in_pieces, inferred, pieces_of
from nearpeak.core.runs.measurement import Fallback
from nearpeak.errors import SpecError
from nearpeak.measurement.machine.compile_breaks import Counted, breaks, graph_coverage, library_kernels, of_products
from nearpeak.measurement.machine.onnx_session import assignments, runtime_or_refusal, session_of

REPEATS = 5
"""Timed runs, of which the shortest counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node of the graph."""

    key: str
    """Its name, or type and position among those of its type."""
    kind: str
    """Operator type, with its domain where that is not the standard's."""
    proto: Any
    """Its ONNX node."""


def onnx_conversion(
    path: Path, flop: Mapping[str, int], without: tuple[str, ...] = (), least_count: int = 1
) -> Conversion:
    """Return the conversion coverage of the model at `path` by ONNX Runtime; executed in this process.

    Args:
        flop: FLOP of each node by key, where a rule knows it.
        without: operator types that are treated as unconverted.
        least_count: least nodes of a converted piece; smaller ones are treated as unconverted.

    Raises:
        MissingExtraError: ONNX Runtime is absent.
        SpecError: the model has no node of a type that is to be left out.
    """
    import onnx

    runtime = runtime_or_refusal("coverage --runner onnxruntime")
    check_file(path)
    model = inferred(onnx, onnx.load(str(path)))
    nodes = _nodes(model)
    kinds = {node.kind for node in nodes}
    if unknown := [name for name in without if name not in kinds]:
        raise SpecError(f"{path}: has no node of type {unknown[0]!r} to leave out; it has {', '.join(sorted(kinds))}")
    session, whole_reason = _tried(runtime, path)
    refused = {} if session is not None else _refused(runtime, onnx, model, nodes)
    if session is None and not refused:  # each node runs alone, but not the whole
        refused = {node.key: whole_reason for node in nodes}
    else:
        placed = {name: provider for provider, _, name in assignments(session)} if session else {}
        first = session.get_providers()[0] if session else ""
        left = ((node.key, placed.get(node.key, first)) for node in nodes)
        refused |= {key: f"left to {provider}" for key, provider in left if provider != first}
    unable = frozenset(refused)
    refused = {node.key: "left out on request" for node in nodes if node.kind in without} | refused
    for converted, group in _groups(nodes, refused):
        if converted and len(group) < least_count:
            reason = f"its piece has {len(group)} of at least {least_count} nodes"
            refused |= {node.key: reason for node in group}
    crossing = list(_crossing(model, nodes, refused).values())
    known = [size for size in crossing if size is not None]
    sizes = known if len(known) == len(crossing) else None
    timed_s = None if session is None else _whole_s(session)
    shares = {} if session is None else _time_shares(runtime, path)
    pieces_s, error = _pieces_s(runtime, onnx, model, _groups(nodes, refused), unable, session)
    total = sum(flop.values())
    ledger = tuple(
        Fallback(
            node=f"{node.kind} {node.key}", ran_on="nothing", reason=refused[node.key], flop=flop.get(node.key, 0),
            flop_ratio=flop[node.key] / total if total and node.key in flop else None,
            time_ratio=shares.get(node.key),
        )
        for node in nodes if node.key in refused
    )  # fmt: skip
    return Conversion(
        model=path.name, runner="onnxruntime", node_count=len(nodes), converted_count=len(nodes) - len(refused),
        fragment_count=sum((converted for converted, _ in _groups(nodes, refused))), boundary_count=len(crossing),
        boundary_bytes=None if sizes is None else sum(sizes), boundary_s=None if sizes is None else _copied_s(sizes),
        converted_s=timed_s, unconverted_s=None, ledger=ledger, pieces_s=pieces_s, pieces_error_ratio=error,
        placed=tuple(sorted(Counter(placed for placed, _, _ in assignments(session)).items())) if session else (),
    )  # fmt: skip


def _nodes(model: Any) -> tuple[_Node, ...]:
    counts: dict[str, int] = {}
    nodes = []
    for proto in model.graph.node:
        position = counts[proto.op_type] = counts.get(proto.op_type, -1) + 1
        kind = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
        nodes.append(_Node(key=proto.name or f"{proto.op_type}[{position}]", kind=kind, proto=proto))
    return tuple(nodes)


def _tried(runtime: Any, model: bytes | Path) -> tuple[Any, str]:
    """Return a session of the model, or none and why."""
    try:
        return session_of(runtime, model, 1), ""
    except Exception as error:  # the runtime creates its error classes on import
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[0] if lines else type(error).__name__
        return None, text.split("failed:", 1)[-1].strip()[:200]


def _refused(runtime: Any, onnx: Any, model: Any, nodes: Sequence[_Node]) -> dict[str, str]:
    """Return by key why a node has no kernel: each distinct node is tried alone."""
    known = {item.name: item for item in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    stored = {item.name: item for item in model.graph.initializer}
    tried: dict[bytes, str] = {}
    reasons = {}
    for node in nodes:
        alone = _alone(onnx, model, node.proto, (known, stored))
        if alone not in tried:
            tried[alone] = _tried(runtime, alone)[1]
        if tried[alone]:
            reasons[node.key] = tried[alone]
    return reasons


def _alone(onnx: Any, model: Any, proto: Any, context: tuple[Mapping[str, Any], Mapping[str, Any]]) -> bytes:
    """Return a model of one node with tensors named by position, so that equal nodes give equal bytes."""
    known, stored = context
    node = onnx.NodeProto()
    node.CopyFrom(proto)
    node.name = ""
    names = {name: f"t{number}" for number, name in enumerate(dict.fromkeys((*proto.input, *proto.output))) if name}
    inputs, initializers, outputs = [], [], []
    for name in dict.fromkeys(name for name in proto.input if name):
        if name in stored:
            initializer = onnx.TensorProto()
            initializer.CopyFrom(stored[name])
            initializer.name = names[name]
            initializers.append(initializer)
        elif name in known:
            inputs.append(_renamed(onnx, known[name], names[name]))
    for name in (name for name in proto.output if name):
        empty = onnx.ValueInfoProto(name=names[name])
        outputs.append(_renamed(onnx, known[name], names[name]) if name in known else empty)
    node.input[:] = [names.get(name, "") for name in proto.input]
    node.output[:] = [names.get(name, "") for name in proto.output]
    graph = onnx.helper.make_graph([node], "alone", inputs, outputs, initializers)
    made = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    text: bytes = made.SerializeToString()
    return text


def _renamed(onnx: Any, item: Any, name: str) -> Any:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(item)
    copy.name = name
    return copy


def _groups(nodes: Sequence[_Node], refused: Mapping[str, str]) -> list[tuple[bool, list[_Node]]]:
    """Return the pieces that the nodes form, without cyclic dependencies between pieces."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.proto.output if name}
    links = [[makers[name] for name in node.proto.input if name in makers] for node in nodes]
    pieces = convex_pieces(links, [node.key not in refused for node in nodes])
    return [(nodes[piece[0]].key not in refused, [nodes[number] for number in piece]) for piece in pieces]


def _pieces_s(
    runtime: Any, onnx: Any, model: Any, groups: Sequence[tuple[bool, Sequence[_Node]]], unable: frozenset[str],
    whole: Any,
) -> tuple[float | None, float | None]:  # fmt: skip
    """Return the time of running all pieces in sequence, and the largest relative error against the whole.

    Where nodes have no kernel, it is the time of the converted pieces alone, each on ones, without an error.
    """
    pieces = [piece for piece in pieces_of(onnx, model, groups) if not unable.intersection(piece.keys)]
    sessions = [(piece, _tried(runtime, piece.model)[0]) for piece in pieces]
    if not sessions or any(session is None for _, session in sessions):
        return None, None
    try:
        if unable or whole is None:
            fed = [(session, feeds_of(session)) for piece, session in sessions if piece.converted]
            ready = [(session, feeds) for session, feeds in fed if feeds is not None]
            return (
                (_best_s(lambda: [session.run(None, feeds) for session, feeds in ready]), None)
                if ready
                else (None, None)
            )
        feeds = feeds_of(whole)
        if feeds is None:
            return None, None
        run, names = in_pieces(sessions, feeds), [item.name for item in whole.get_outputs()]
        apart, together = run(), whole.run(names, feeds)
        return _best_s(run), max(
            (_error(apart[name], wanted) for name, wanted in zip(names, together, strict=True)), default=0.0
        )
    except Exception:  # open extents that do not go together
        return None, None


def _error(got: Any, wanted: Any) -> float:
    """Return the largest difference over the largest magnitude."""
    wanted = np.asarray(wanted, np.float64)
    largest = float(np.abs(wanted).max(initial=0.0))
    difference = float(np.abs(np.asarray(got, np.float64) - wanted).max(initial=0.0))
    return difference / largest if largest else difference


def _time_shares(runtime: Any, path: Path) -> dict[str, float]:
    """Return the share of each node by name in the time of one run, by the runtime's own profile."""
    with tempfile.TemporaryDirectory() as folder:
        session = session_of(runtime, path, 1, profile=str(Path(folder) / "profile"))
        feeds = feeds_of(session)
        try:
            for _ in range(REPEATS if feeds is not None else 0):
                session.run(None, feeds)
        except Exception:  # open extents that do not go together
            return {}
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["name"].removesuffix("_kernel_time")] += event["dur"]
    total = sum(times.values())
    return {name: taken / total for name, taken in times.items()} if total else {}


def _crossing(model: Any, nodes: Sequence[_Node], refused: Mapping[str, str]) -> dict[str, int | None]:
    """Return the bytes of each tensor that crosses between sides; none where its shape is unknown."""
    sizes = {item.name: _bytes(item) for item in (*model.graph.value_info, *model.graph.output)}
    makers = {name: node.key in refused for node in nodes for name in node.proto.output}
    return {
        name: sizes.get(name)
        for node in nodes for name in node.proto.input
        if name in makers and makers[name] != (node.key in refused)
    }  # fmt: skip


def _bytes(item: Any) -> int | None:
    """Return the bytes of a tensor; none where the model leaves its format or an extent open."""
    import onnx

    kind = item.type.tensor_type
    extents = [int(extent.dim_value) if extent.HasField("dim_value") else None for extent in kind.shape.dim]
    if not kind.elem_type or not kind.HasField("shape") or None in extents:
        return None
    element = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).itemsize
    return math.prod(extent for extent in extents if extent is not None) * int(element)


def _whole_s(session: Any) -> float | None:
    """Return the time of one run of the whole model; none where an input's shape or format is left open."""
    feeds = feeds_of(session)
    if feeds is None:
        return None
    try:
        return _best_s(lambda: session.run(None, feeds))
    except Exception:  # open extents that do not go together
        return None


def _copied_s(sizes: Sequence[int]) -> float:
    """Return the time of copying arrays of these sizes once each."""
    pairs = [(np.ones(size, np.uint8), np.zeros(size, np.uint8)) for size in sizes]

    def copied() -> None:
        for source, target in pairs:
            np.copyto(target, source)

    return _best_s(copied) if pairs else 0.0


def _best_s(run: Any) -> float:
    best_s = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best_s = min(best_s, time.perf_counter() - start)
    return best_s


def torch_conversion(path: Path, counted: Counted = of_products) -> Conversion:
    """Return the conversion coverage of a problem file by torch.compile; executed in this process.

    FLOP are counted in all graphs and in an eager run; the difference is outside of graphs. Library kernels of compiled
    graphs are in the ledger too.

    Args:
        counted: counter of FLOP; PyTorch's own counts products alone.

    Raises:
        SpecError: the file lacks a part of the convention.
    """
    import torch

    keep_compiled_code()
    model, inputs = problem_of(path)
    coverage = graph_coverage(torch, model, inputs, {}, counted)
    with torch.no_grad():
        unconverted_s = _best_s(lambda: model(*inputs))
        compiled = torch.compile(model, dynamic=False)
        kernels = library_kernels(torch, compiled, inputs, {}, coverage, counted)
        converted_s = _best_s(lambda: compiled(*inputs))
    node_count = coverage.op_count + len(coverage.breaks)
    return Conversion(
        model=path.name, runner="torch_compile", node_count=node_count, converted_count=coverage.op_count,
        fragment_count=coverage.graph_count, boundary_count=max(0, coverage.graph_count - 1),
        boundary_bytes=None if coverage.graph_count > 1 else 0, boundary_s=None, converted_s=converted_s,
        unconverted_s=unconverted_s, ledger=(*breaks(coverage), *kernels),
    )  # fmt: skip


def problem_of(path: Path) -> tuple[Any, tuple[Any, ...]]:
    """Return the model of a problem file, in evaluation mode, and its inputs."""
    import importlib.util

    specification = importlib.util.spec_from_file_location("nearpeak_problem", path)
    if specification is None or specification.loader is None:
        raise SpecError(f"{path}: no Python file")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except SyntaxError as error:
        raise SpecError(f"{path}: is not Python: {error}") from None
    for part in ("Model", "get_inputs"):
        if not hasattr(module, part):
            raise SpecError(f"{path}: it has no {part}; a problem file defines class Model and get_inputs()")
    arguments: Any = getattr(module, "get_init_inputs", list)()
    model = module.Model(**arguments) if isinstance(arguments, dict) else module.Model(*arguments)
    return model.eval(), tuple(module.get_inputs())
