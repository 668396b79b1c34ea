"""A reduction over one element is that element; a softmax over one element is 1, its logarithm 0."""

from nearpeak.bounds.simplify.affine_views import reshape
from nearpeak.bounds.simplify.operator_arguments import dimensions
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet

_SAME = frozenset(("amax", "amin", "max", "min", "prod", "logsumexp", "cumsum", "cumprod", "logcumsumexp"))
_FIXED = {"_softmax": 1.0, "_safe_softmax": 1.0, "_log_softmax": 0.0, "argmax": 0.0, "argmin": 0.0}


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, OperatorCall)
    name = packet(node.options.name)
    if len(node.inputs) != 1 or name not in _SAME | set(_FIXED):
        return None
    shape = graph[node.inputs[0]].shape
    if any(shape[axis] != 1 for axis in dimensions(node.options, len(shape))):
        return None
    if node.options.result:  # the position of the largest among one
        return graph.constant(0.0, node.shape, node.dtype)
    if name in _FIXED:
        return graph.constant(_FIXED[name], node.shape, node.dtype)
    return reshape(graph, node.inputs[0], node.shape)


REWRITE = Rewrite(
    kinds=("call",),
    rule=_rule,
    text="a reduction over one element is that element, a softmax over one element is 1",
    sound="values are finite (A8)",
)
