"""trtexec: JSON exports of query times, layer profiles and layer descriptions."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.traces.trace import NO_TIMES, EventKind, Loss, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.json_document import document_of
from nearpeak.traces.reading.table_rows import EventRows, integers, real_numbers, whole
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

_MS = 1_000_000
_PARTS = (
    ("Enq", EventKind.HOST_API),
    ("H2D", EventKind.MEMCPY),
    ("Compute", EventKind.KERNEL),
    ("D2H", EventKind.MEMCPY),
)
_ORIGIN = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


def layer_nodes(layer: Mapping[str, Any]) -> tuple[str, ...]:
    r"""Return the nodes of the ONNX model that a layer of the engine computes.

    >>> layer_nodes({"Metadata": "[ONNX Layer: /a/Conv]\x1e[ONNX Layer: /a/Relu]"})
    ('/a/Conv', '/a/Relu')
    """
    return tuple(_ORIGIN.findall(str(layer.get("Metadata", ""))))


def _read(path: Path) -> Trace:
    """Return the trace of an export."""
    data, losses = document_of(path)
    rows = EventRows()
    if isinstance(data, dict) and isinstance(data.get("Layers"), list):
        return _described(path, data, losses, rows)
    if not isinstance(data, list):
        raise SpecError(f"{path.name}: holds neither a list nor an object with Layers, as exports of trtexec do")
    objects = [entry for entry in data if isinstance(entry, dict)]
    if len(objects) < len(data):
        rows.lose("dropped", "entry that is no object", len(data) - len(objects))
    if any("name" in entry and ("averageMs" in entry or "timeMs" in entry) for entry in objects):
        return _profile(path, objects, losses, rows)
    if any("startComputeMs" in entry or "computeMs" in entry for entry in objects):
        return _queries(path, objects, losses, rows)
    if any("count" in entry for entry in objects):
        return _profile(path, objects, losses, rows)
    raise SpecError(f"{path.name}: its objects have neither name and averageMs nor startComputeMs")


def _profile(path: Path, objects: Sequence[Mapping[str, Any]], losses: list[Loss], rows: EventRows) -> Trace:
    """Return layers one after another by their mean; profiling each layer makes the whole longer than a query."""
    count = next((whole(layer["count"]) for layer in objects if "count" in layer), MISSING)
    layers = [layer for layer in objects if "name" in layer]
    means = [_mean(layer, count) for layer in layers]
    timed = [(layer, mean) for layer, mean in zip(layers, means, strict=True) if mean is not None]
    if len(timed) < len(layers):
        rows.lose("dropped", "layer without a readable time", len(layers) - len(timed))
    lengths = np.array([round(mean * _MS) for _, mean in timed], np.int64)
    ends = np.cumsum(lengths)
    rows.add(
        EventKind.KERNEL,
        [layer["name"] for layer, _ in timed],
        ends - lengths,
        ends,
        device=np.zeros(len(timed), np.int64),
        rare={
            name: real_numbers([layer.get(name) for layer, _ in timed])
            for name in ("timeMs", "averageMs", "medianMs", "percentage")
        },
    )
    lack = f"{NO_TIMES} layers are placed end to end by their means, whose sum is longer than a query without profiling"
    return rows.trace(
        TraceHeader(
            format="trtexec_json",
            source=path.name,
            clock="none",
            method="trtexec --exportProfile",
            lacks=(lack,),
            losses=tuple(losses),
            metadata={} if count == MISSING else {"count": count},
        )
    )


def _mean(layer: Mapping[str, Any], count: int) -> float | None:
    """Return the mean time of a layer in milliseconds; from the sum where the file states no mean."""
    mean, total = (float(value) for value in real_numbers([layer.get("averageMs"), layer.get("timeMs")]))
    mean_ms = mean if not math.isnan(mean) else total / count if count != MISSING and count > 0 else math.nan
    return mean_ms if 0 <= mean_ms < 1e9 else None


def _queries(path: Path, objects: Sequence[Mapping[str, Any]], losses: list[Loss], rows: EventRows) -> Trace:
    """Return enqueueing, transfers and computing of each query."""
    for name, kind in _PARTS:
        keys = (f"start{name}Ms", f"end{name}Ms")
        timed = [query for query in objects if all(key in query for key in keys)]
        start, end = (integers([query[key] for query in timed], _MS) for key in keys)
        names = {"Enq": "enqueue", "H2D": "Memcpy HtoD", "Compute": "query", "D2H": "Memcpy DtoH"}
        lane: dict[str, Any] = {"thread" if kind is EventKind.HOST_API else "device": np.zeros(len(timed), np.int64)}
        rows.add(
            kind,
            [names[name]] * len(timed),
            start,
            end,
            correlation=np.arange(len(timed), dtype=np.int64),
            **lane,
        )
    lacks = ("no kernels: a query is one event",)
    return rows.trace(
        TraceHeader(
            format="trtexec_json",
            source=path.name,
            clock="monotonic",
            method="trtexec --exportTimes",
            lacks=lacks,
            losses=tuple(losses),
        )
    )


def _described(path: Path, data: Mapping[str, Any], losses: list[Loss], rows: EventRows) -> Trace:
    """Return the layers of an engine without any time; they stand in the header."""
    layers = [layer if isinstance(layer, dict) else {"Name": str(layer)} for layer in data["Layers"]]
    nodes = {str(layer.get("Name", "")): layer_nodes(layer) for layer in layers}
    return rows.trace(
        TraceHeader(
            format="trtexec_json",
            source=path.name,
            clock="none",
            method="trtexec --exportLayerInfo",
            lacks=("no times: the file describes layers",),
            losses=tuple(losses),
            record_count=len(layers),
            metadata={"layers": layers, "nodes": nodes, "bindings": data.get("Bindings", [])},
        )
    )


_MARKS = re.compile(
    rb'"(averageMs|startComputeMs|startEnqMs|computeMs|LayerType|TacticName)"|^\s*\[\s*\{\s*"count"|^\s*\{\s*"Layers"'
)


def _recognises(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"[", b"{") and bool(_MARKS.search(head))


FORMAT = TraceFormat(name="trtexec_json", title="TensorRT (trtexec), JSON exports", recognises=_recognises, read=_read)
