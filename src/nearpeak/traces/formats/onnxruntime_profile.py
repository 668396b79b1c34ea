"""onnxruntime: profile of `enable_profiling`, in whole microseconds, so that short nodes read 0."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.input_files import json_value
from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.traces.reading.chrome_events import EventTable, Rules
from nearpeak.traces.timeline.kernel_names import family_of
from nearpeak.traces.timeline.trace_columns import Column, Trace
from nearpeak.traces.trace_format import TraceFormat

_LACK = "times are whole microseconds: a node of 0 is shorter than the clock can tell"
_KINDS = {
    "session": EventKind.HOST_RANGE,
    "node": EventKind.HOST_OP,
    "api": EventKind.HOST_API,
    "kernel": EventKind.KERNEL,
}


def _kind(phase: str, category: str) -> EventKind | str:
    if phase == "X":
        return _KINDS.get(category.lower(), f"?category {category or 'none'!r}")
    return "label of a process or thread" if phase == "M" else f"?phase {phase!r}"


def _read(path: Path) -> Trace:
    """Return the trace of a profile: runs and session as ranges, nodes as operators."""
    table, file = EventTable.of_file(path, Rules(kind_of=_kind, record="event", device_is_process=False))
    header = TraceHeader(
        format="onnxruntime_profile",
        source=path.name,
        resolution_ns=1000,
        clock="monotonic",
        metadata=dict(file.metadata),
        method="profiler (onnxruntime)",
        record_count=file.record_count,
        lacks=(_LACK,),
        trimmed=any(loss.kind.startswith("end of") for loss in file.losses),
    )
    return _with_nodes(_without_fences(table.trace(header)))


def _without_fences(trace: Trace) -> Trace:
    """Return the trace with the events before and after nodes, which older files hold, as overhead."""
    fences = trace.where(lambda name: name.endswith(("_fence_before", "_fence_after")))
    if not fences.any():
        return trace
    kind = trace.kind.copy()
    kind[fences] = EventKind.OVERHEAD
    return replace(trace, kind=kind)


def _with_nodes(trace: Trace) -> Trace:
    """Return the trace with families taken from the operator of each node, and inputs as in other formats.

    Names are those of nodes, which fusion gives to what it made of several: a convolution may be called after the
    activation that it swallowed.
    """
    family = trace.family.copy()
    if (operators := trace.sparse.get("op_name")) is not None and operators.text:
        known = {int(number): family_of(trace.texts[int(number)]) for number in np.unique(operators.values)}
        family[operators.rows] = [known[int(number)] for number in operators.values]
    inputs = trace.sparse.get("input_type_shape")
    if inputs is None or not inputs.text:
        return replace(trace, family=family)
    numbers, places = np.unique(inputs.values, return_inverse=True)
    pairs = [tensors_of(trace.texts[int(number)]) for number in numbers]
    sparse, texts = dict(trace.sparse), trace.texts
    for name, lists in zip(("dtypes", "shapes"), zip(*pairs, strict=True), strict=True):
        added = texts.with_more([json.dumps(values, separators=(",", ":")) for values in lists])
        first = len(texts)
        sparse[name] = Column(rows=inputs.rows, values=(first + places).astype(np.int64), text=True)
        texts = added
    return replace(trace, family=family, texts=texts, sparse=sparse)


def tensors_of(text: str) -> tuple[list[str], list[list[int]]]:
    """Return formats and shapes of a list like `[{"float":[2,3]}]`; none where it is something else.

    >>> tensors_of('[{"float":[2,3]},{"int64":[1]}]')
    (['float', 'int64'], [[2, 3], [1]])
    """
    try:
        pairs = [pair for tensor in json_value(text) for pair in tensor.items()]
        return [name for name, _ in pairs], [[_extent(n) for n in shape] for _, shape in pairs]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return [], []


def _extent(value: Any) -> int:
    """Return an extent of the file.

    Raises:
        TypeError: it is no whole number.
    """
    if type(value) is not int:
        raise TypeError(value)
    return value


_MARKS = re.compile(rb'"cat"\s*:\s*"(Session|Node)"')


def _recognises(head: bytes) -> bool:
    return head.lstrip()[:1] == b"[" and bool(_MARKS.search(head))


FORMAT = TraceFormat(name="onnxruntime_profile", title="onnxruntime, profile", recognises=_recognises, read=_read)
