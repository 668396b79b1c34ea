"""Conditions of capability tables, decided for one node."""

from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.conversion.capability_table import Condition
from nearpeak.conversion.model_graph import ModelGraph


def decide(condition: Condition, graph: ModelGraph, node: int) -> bool | None:
    """Return whether the condition holds for a node; none where the file does not tell.

    Args:
        node: position of the node.
    """
    return _RULES[condition.kind](condition.settings, graph, node)


def is_foldable(condition: Condition, graph: ModelGraph, node: int) -> bool:
    """Return whether folding constants would fulfil a condition that asks for a stored operand."""
    return condition.kind == "initializer" and _operand(condition.settings, graph, node) in graph.values


def _operand(settings: Mapping[str, Any], graph: ModelGraph, node: int, key: str = "input") -> str:
    """Return the tensor at the position that a setting names; empty where the node leaves it out."""
    inputs = graph.inputs[node]
    return inputs[settings[key]] if settings[key] < len(inputs) else ""


def _rank(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    tensor = graph.tensors.get(_operand(settings, graph, node))
    return None if tensor is None else settings["least"] <= len(tensor.shape) <= settings["most"]


def _ones(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    return all(value == 1 for value in graph.attributes[node].get(settings["attribute"], ()))


def _results(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    return not any(graph.outputs[node][settings["most"] :])


def _absent(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    stated = {item.name for item in graph.protos[node].attribute}
    return stated.isdisjoint(settings["attributes"])


def _initializer(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    name = _operand(settings, graph, node)
    return not name or name in graph.stored


def _known(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    name = _operand(settings, graph, node)
    return not name or name in graph.stored or name in graph.values


def _value(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    name = _operand(settings, graph, node)
    if not name:
        return True
    if name not in graph.values:
        return None
    values = graph.values[name].reshape(-1).tolist()
    if "in" in settings and not all(value in settings["in"] for value in values):
        return False
    return "most" not in settings or all(value <= settings["most"] for value in values)


def _attribute(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    value = graph.attributes[node].get(settings["attribute"])
    return value is None or any(type(allowed) is type(value) and allowed == value for allowed in settings["in"])


def _mirrored(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    values = tuple(graph.attributes[node].get(settings["attribute"], ()))
    return values[: len(values) // 2] == values[len(values) // 2 :]


def _same_directions(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    if graph.attributes[node].get("direction") != "bidirectional":
        return True
    return _mirrored(settings, graph, node)


def _static(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    return True if _operand(settings, graph, node) in graph.tensors else None


def _all_axes(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    axes = graph.attributes[node].get(settings["attribute"])
    if axes is None or not _operand(settings, graph, node, "given"):
        return True
    tensor = graph.tensors.get(_operand(settings, graph, node))
    return None if tensor is None else tuple(axes) == tuple(range(len(tensor.shape)))


def _follows(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    name = _operand(settings, graph, node)
    kinds = [kind for kind, made in zip(graph.kinds, graph.outputs, strict=True) if name in made]
    readers = sum(name in read for read in graph.inputs)
    return bool(kinds and kinds[0] in settings["kinds"] and readers == 1 and name not in graph.results)


def _last_axes(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    tensor, axes = graph.tensors.get(_operand(settings, graph, node)), graph.attributes[node].get(settings["attribute"])
    if tensor is None:
        return None
    rank = len(tensor.shape)
    stated = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    return sorted(axis % max(rank, 1) for axis in stated) == list(range(rank - settings["count"], rank))


def _at_most(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    values, limits = (graph.attributes[node].get(settings[key]) or () for key in ("attribute", "limit"))
    return all(value <= limit for value, limit in zip(values, limits, strict=False))


def _not_negative(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    return all(value >= 0 for value in graph.attributes[node].get(settings["attribute"], ()))


def _operands(settings: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    return bool(sum(map(bool, graph.inputs[node])) >= settings["least"])


def _one_format(_: Mapping[str, Any], graph: ModelGraph, node: int) -> bool | None:
    names = [name for name in (*graph.inputs[node], *graph.outputs[node]) if name]
    formats = {graph.tensors[name].dtype for name in names if name in graph.tensors}
    return len(formats) <= 1 if all(name in graph.tensors for name in names) else None


_RULES: Mapping[str, Callable[[Mapping[str, Any], ModelGraph, int], bool | None]] = {
    "rank": _rank, "ones": _ones, "results": _results, "absent": _absent, "initializer": _initializer,
    "known": _known, "value": _value, "attribute": _attribute, "mirrored": _mirrored,
    "same_directions": _same_directions, "static": _static, "static_axis": _static, "all_axes": _all_axes,
    "follows": _follows, "last_axes": _last_axes, "at_most": _at_most, "not_negative": _not_negative,
    "operands": _operands, "one_format": _one_format,
    "words": lambda *_: None,
}  # fmt: skip
"""Rule by kind of condition."""
