"""A choice whose condition is known takes one side."""

from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, OperatorCall)
    name = packet(node.options.name)
    condition = node.options.value({"where": "condition", "masked_fill": "mask"}.get(name, ""))
    if not isinstance(condition, Slot) or graph[node.inputs[condition.position]].kind != "constant":
        return None
    holds = graph[node.inputs[condition.position]].options != 0
    side = node.options.value("other" if holds == (name == "masked_fill") else "self")
    taken = node.inputs[side.position] if isinstance(side, Slot) else None
    return taken if taken is not None and graph[taken][2:4] == node[2:4] else None


REWRITE = Rewrite(
    kinds=("pointwise",),
    rule=_rule,
    text="a choice by a condition that is known takes one side",
    sound="the condition is the same everywhere",
)
