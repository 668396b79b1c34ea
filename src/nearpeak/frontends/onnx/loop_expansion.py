"""Unrolling of ONNX Loop and Scan nodes with a known trip count."""

from collections.abc import Iterator, Mapping
from typing import Any

from nearpeak.core.work.tensor import Tensor
from nearpeak.frontends.onnx.expansion_limits import most_unrolled

LARGEST_NODE_COUNT = 20_000
"""Most nodes of an unrolled loop; longer ones stay a single node."""


def written_out(
    onnx: Any, graph: Any, node: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor], opset: int
) -> list[Any]:
    """Return the nodes of an unrolled loop in order; the node itself if its trip count depends on data.

    Constants that the body holds are added to `graph`. Results that a body yields trip by trip are stacked.
    """
    trips = _trips(node, values, tensors, opset)
    body = next((item.g for item in node.attribute if item.name == "body"), None)
    if body is None or trips is None or not 0 < trips * len(body.node) <= min(LARGEST_NODE_COUNT, most_unrolled(node)):
        return [node]
    loop = _Loop(onnx, graph, node, body, opset)
    return list(loop.from_scan(trips) if node.op_type == "Scan" else loop.from_loop(trips))


def _trips(node: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor], opset: int) -> int | None:
    """Return the trip count, none if it depends on data."""
    stated = {item.name: item for item in node.attribute}
    if node.op_type == "Scan" and opset >= 9:
        count = int(stated["num_scan_inputs"].i)
        axes = list(stated["scan_input_axes"].ints) if "scan_input_axes" in stated else [0] * count
        first = node.input[len(node.input) - count]
        return tensors[first].shape[axes[0]] if first in tensors else None
    if node.op_type != "Loop" or node.input[0] not in values:
        return None
    begins = len(node.input) < 2 or not node.input[1] or bool(values.get(node.input[1], False))
    return int(values[node.input[0]]) if begins and _goes_on(stated["body"].g) else None


def _goes_on(body: Any) -> bool:
    """Return whether the body never ends the loop: its condition is passed through, or a constant true."""
    name, condition = body.output[0].name, body.input[1].name
    made = {out: node for node in body.node for out in node.output}
    while name in made and made[name].op_type in ("Identity", "Cast"):
        name = made[name].input[0]
    if name == condition:
        return True
    stored = [item for item in body.initializer if item.name == name]
    if name in made and made[name].op_type == "Constant":
        stored = [item.t for item in made[name].attribute if item.name == "value"]
    return any(any(constant.raw_data) or any(constant.int32_data) for constant in stored)


class _Loop:
    """Unrolls one loop."""

    def __init__(self, onnx: Any, graph: Any, node: Any, body: Any, opset: int) -> None:
        self._onnx, self._graph, self._node, self._body, self._opset = onnx, graph, node, body, opset
        self._prefix = node.output[0]
        self._stored = {item.name: f"{self._prefix}/{item.name}" for item in body.initializer}
        for item in body.initializer:
            copy = onnx.TensorProto()
            copy.CopyFrom(item)
            copy.name = self._stored[item.name]
            graph.initializer.append(copy)
        self._attributes = {item.name: item for item in node.attribute}

    def from_loop(self, trips: int) -> Iterator[Any]:
        """Yield the nodes of a Loop: its body takes the number of the trip, a condition, and what is carried."""
        import numpy as np

        carried = list(self._node.input[2:])
        yielded: list[list[str]] = []
        true = self._constant("true", np.array(True))
        for trip in range(trips):
            number = self._constant(f"trip{trip}", np.array(trip, dtype=np.int64))
            names = self._names(trip, [number, true, *carried])
            yield from self._nodes(names)
            outs = [names[item.name] for item in self._body.output[1:]]
            carried, rest = outs[: len(carried)], outs[len(carried) :]
            yielded.append(rest)
        yield from self._results(carried, yielded)

    def from_scan(self, trips: int) -> Iterator[Any]:
        """Yield the nodes of a Scan: its body takes what is carried and one slice of each input."""
        count = int(self._attributes["num_scan_inputs"].i)
        carried, whole = list(self._node.input[:-count]), list(self._node.input[-count:])
        axes, turned = self._ints("scan_input_axes", count), self._ints("scan_input_directions", count)
        yielded: list[list[str]] = []
        for trip in range(trips):
            slices = []
            for place, name in enumerate(whole):
                slices.append(f"{self._prefix}/{trip}/slice{place}")
                yield self._slice(name, slices[-1], trips - 1 - trip if turned[place] else trip, axes[place])
            names = self._names(trip, [*carried, *slices])
            yield from self._nodes(names)
            outs = [names[item.name] for item in self._body.output]
            carried, rest = outs[: len(carried)], outs[len(carried) :]
            yielded.append(rest)
        yield from self._results(carried, yielded)

    def _names(self, trip: int, arguments: list[str]) -> dict[str, str]:
        """Return the outer name of each name in the body for one iteration."""
        inner = {out: f"{self._prefix}/{trip}/{out}" for node in self._body.node for out in node.output if out}
        taken = dict(zip((item.name for item in self._body.input), arguments, strict=True))
        return {**self._stored, **inner, **taken}

    def _nodes(self, names: Mapping[str, str]) -> Iterator[Any]:
        for node in self._body.node:
            copy = self._onnx.NodeProto()
            copy.CopyFrom(node)
            _rename(copy, names)
            yield copy

    def _results(self, carried: list[str], yielded: list[list[str]]) -> Iterator[Any]:
        make, outputs = self._onnx.helper.make_node, list(self._node.output)
        for inner, outer in zip(carried, outputs, strict=False):
            if outer:
                yield make("Identity", [inner], [outer])
        axes = self._ints("scan_output_axes", len(yielded[0]))
        turned = self._ints("scan_output_directions", len(yielded[0]))
        for place, outer in enumerate(outputs[len(carried) :]):
            if not outer:
                continue
            parts = [rest[place] for rest in (reversed(yielded) if turned[place] else yielded)]
            rows = [f"{outer}/row{index}" for index in range(len(parts))]
            yield from (self._unsqueeze(part, row, axes[place]) for part, row in zip(parts, rows, strict=True))
            yield make("Concat", rows, [outer], axis=axes[place])

    def _slice(self, name: str, out: str, index: int, axis: int) -> Any:
        import numpy as np

        number = self._constant(f"index{index}", np.array(index, dtype=np.int64))
        return self._onnx.helper.make_node("Gather", [name, number], [out], axis=axis)

    def _unsqueeze(self, name: str, out: str, axis: int) -> Any:
        import numpy as np

        if self._opset < 13:
            return self._onnx.helper.make_node("Unsqueeze", [name], [out], axes=[axis])
        return self._onnx.helper.make_node(
            "Unsqueeze", [name, self._constant(f"axis{axis}", np.array([axis], dtype=np.int64))], [out]
        )

    def _constant(self, name: str, value: Any) -> str:
        """Return the name of a constant, stored on first use."""
        whole = f"{self._prefix}/{name}"
        if whole not in self._stored.values():
            self._stored[f"/{name}"] = whole  # no name of a body starts like this
            self._graph.initializer.append(self._onnx.numpy_helper.from_array(value, whole))
        return whole

    def _ints(self, name: str, count: int) -> list[int]:
        return list(self._attributes[name].ints) if name in self._attributes else [0] * count


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Rename what a node reads and writes, and what bodies inside it read from outside."""
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for item in node.attribute:
        if item.HasField("g"):
            inner_names = {value.name for value in (*item.g.input, *item.g.initializer)}
            inner_names |= {out for inner in item.g.node for out in inner.output}
            outer = {name: new for name, new in names.items() if name not in inner_names}
            for inner in item.g.node:
                _rename(inner, outer)
            for out in item.g.output:
                out.name = outer.get(out.name, out.name)
