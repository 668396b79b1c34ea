"""Host execution traces in Chakra's format, which PyTorch's ExecutionTraceObserver writes: operators as a workload."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.base.input_files import json_value, text_of_file
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.torch.plain_operators import Recorded
from nearpeak.frontends.torch.profiled_calls import recorded_calls

_OPERATOR = re.compile(r"^(aten|torchvision|c10d)::")
_TENSOR = re.compile(r"^Tensor\((.+)\)$")
_LIST = re.compile(r"^GenericList\[(.*)\]$")
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", re.compile(r"^Optimizer\.(step|zero_grad)#")
_TEXTS = ("None", "String", "Device", "Generator", "Storage", "Stream")
"""Types whose values say nothing of the work."""
MOST_NODES = 2_000_000


class _Node(NamedTuple):
    """One node as the file states it."""

    name: str
    parent: object
    recorded: Recorded


def is_chakra(data: object) -> bool:
    """Say whether a JSON document is a host execution trace.

    >>> is_chakra({"schema": "1.1.1-chakra.0.0.4", "nodes": []}), is_chakra({"nodes": []})
    (True, False)
    """
    return isinstance(data, dict) and isinstance(data.get("nodes"), list) and isinstance(data.get("schema"), str)


def capture_chakra(path: Path) -> Workload:
    """Return the outermost operators of a trace as calls with their counts, each dispatched once on its shapes.

    Operators that others call are part of those. Communication and operators without a rule are uncovered calls.

    Raises:
        SpecError: the file is no trace, or holds no operator.
        MissingExtraError: PyTorch is not installed.
    """
    data = json_value(text_of_file(path))
    if not is_chakra(data) or len(data["nodes"]) > MOST_NODES:
        raise SpecError(f"{path}: is no host execution trace with 'schema' and up to {MOST_NODES} 'nodes'")
    nodes = {
        number: _node(node)
        for node in data["nodes"]
        if isinstance(node, dict) and isinstance(number := node.get("id"), int)
    }
    counts: Counter[tuple[Recorded, str]] = Counter()
    for node in nodes.values():
        above = _ancestors(node, nodes)
        if _OPERATOR.match(node.name) and not any(_OPERATOR.match(name) for name in above):
            counts[node.recorded, _phase(above)] += 1
    if not counts:
        raise SpecError(f"{path}: holds no operator; record it with ExecutionTraceObserver while a model runs")
    calls: list[Call] = []
    views: Counter[str] = Counter()
    for ((recorded, phase), count), answer in zip(
        counts.items(), recorded_calls([row for row, _ in counts]), strict=True
    ):
        if isinstance(answer, str):
            calls.append(Call(case=None, operator=recorded.name, phase=phase, source=answer, call_count=count))
        elif answer:
            calls += [replace(call, phase=phase, call_count=count * call.call_count) for call in answer]
        else:
            views[recorded.name] += count
    origin = {"kind": "execution trace", "file": path.name, "schema": data["schema"], "nodes": str(len(nodes))}
    return Workload(
        name=path.stem, step="sweep", calls=tuple(calls), origin=origin, skipped=dict(sorted(views.items()))
    )


def _node(node: Mapping[str, Any]) -> _Node:
    """Return a node of the present schema, or of the older one without groups of inputs."""
    inputs = node.get("inputs")
    if isinstance(inputs, dict):
        values, shapes, types = (inputs.get(key) for key in ("values", "shapes", "types"))
    else:
        values, shapes, types = inputs, node.get("input_shapes"), node.get("input_types")
    types = types if isinstance(types, list) else []
    values, shapes = ((cells if isinstance(cells, list) else []) for cells in (values, shapes))
    dtypes = [_format(str(kind)) for kind in types]
    concrete = [
        repr(values[place]) if place < len(values) and not dtypes[place] and kind not in _TEXTS else ""
        for place, kind in enumerate(types)
    ]
    name = str(node.get("name", ""))
    return _Node(
        name=name, parent=node.get("ctrl_deps", node.get("parent")),
        recorded=Recorded(name, _frozen(shapes), _frozen(dtypes), (), tuple(concrete)),
    )  # fmt: skip


def _format(kind: str) -> Any:
    """Return the profiler's name of a tensor's format, a list of them, or nothing for other types."""
    if match := _TENSOR.match(kind):
        return match[1]
    entries = match[1].split(",") if (match := _LIST.match(kind)) else []
    return tuple(_format(entry) for entry in entries) if any(_TENSOR.match(entry) for entry in entries) else ""


def _frozen(value: Any) -> Any:
    """Return a value of JSON that can be compared; objects, which belong in no shape, as text."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return str(value) if isinstance(value, dict) else value


def _ancestors(node: _Node, nodes: Mapping[int, _Node]) -> Sequence[str]:
    """Return the names of the nodes above one, innermost first; a circle ends where it closes."""
    names, seen, above = list[str](), set[object](), node.parent
    while isinstance(above, int) and above in nodes and above not in seen:
        seen.add(above)
        names.append(nodes[above].name)
        above = nodes[above].parent
    return names


def _phase(above: Sequence[str]) -> str:
    if any(name.startswith(_BACKWARD) for name in above):
        return "backward"
    return "optimizer" if any(_OPTIMIZER.match(name) for name in above) else "forward"
