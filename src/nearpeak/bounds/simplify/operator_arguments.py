"""Reduced dimensions and independent dimensions of operators, read from their arguments."""

from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet

_ALONG = frozenset((
    "_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort",
    "topk", "amax", "amin", "max", "min", "argmax", "argmin", "logsumexp", "prod", "any", "all", "var", "std",
    "var_mean", "std_mean", "linalg_vector_norm", "norm", "median", "nanmedian", "mode", "kthvalue", "glu",
))  # fmt: skip
"""Operators of one tensor that take elements along the dimensions `dim` together and no others."""


def dimensions(stated: OperatorCall, rank: int) -> tuple[int, ...]:
    """Return the dimensions named by `dim`; all when none is."""
    if not rank:
        return ()
    dim = stated.value("dim")
    named = (dim,) if isinstance(dim, int) else dim
    if not isinstance(named, tuple) or not named:
        return tuple(range(rank))
    return tuple(int(str(axis)) % rank for axis in named)


def free_dimensions(graph: Graph, node: Node) -> dict[int, dict[int, int]]:
    """Return the dimensions of a result whose positions do not depend on one another.

    By dimension: the dimension of each operand that moves with it, by the operand's position.
    """
    assert isinstance(node.options, OperatorCall)
    name, rank = packet(node.options.name), len(node.shape)
    if name in _ALONG and len(node.inputs) == 1:
        operand_rank = len(graph[node.inputs[0]].shape)
        reduced = dimensions(node.options, operand_rank)
        apart = [axis for axis in range(operand_rank) if axis not in reduced]
        return {axis if rank == operand_rank else place: {0: axis} for place, axis in enumerate(apart)}
    if name in ("native_layer_norm", "_fused_rms_norm") and node.options.result == 0:
        normalised = node.options.value("normalized_shape")
        return {axis: {0: axis} for axis in range(rank - (len(normalised) if isinstance(normalised, tuple) else rank))}
    if name == "nll_loss_forward" and node.options.value("reduction") == 0 and rank == 1:
        return {0: {0: 0, 1: 0}}
    if name == "native_group_norm" and node.options.result == 0:
        return {0: {0: 0}}
    if name != "attention" or isinstance(node.options.value("mask"), Slot) or node.options.value("dropout_p"):
        return {}
    query, key = graph[node.inputs[0]].shape, graph[node.inputs[1]].shape
    free = {axis: {0: axis, 1: axis, 2: axis} for axis in (0, 1) if query[axis] == key[axis]}
    return free if node.options.value("is_causal") else free | {2: {0: 2}}


def moved_axis(node: Node) -> int | None:
    """Return the dimension along which an operator picks positions by a list of them; none for other operators."""
    stated = node.options
    if not isinstance(stated, OperatorCall) or len(node.inputs) != 2 or stated.result or not node.shape:
        return None
    name, places = packet(stated.name), stated.value("indices")
    axis = stated.value("dim") if name == "index_select" else 0 if name == "embedding" else None
    if name == "index" and isinstance(places, tuple):
        axis = next((place for place, value in enumerate(places) if isinstance(value, Slot)), None)
    return axis % len(node.shape) if isinstance(axis, int) else None
