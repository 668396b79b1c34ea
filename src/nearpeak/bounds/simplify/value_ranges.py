"""Value ranges of nodes that hold for every input (interval analysis)."""

from collections.abc import Callable
from functools import reduce
from math import ceil, exp, inf, isinf, isnan, prod

from nearpeak.bounds.simplify.product_sums import Product
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet

Range = tuple[float, float]
ANYTHING: Range = (-inf, inf)

_FIXED: dict[str, Range] = {
    "sigmoid": (0, 1), "tanh": (-1, 1), "_softmax": (0, 1), "_safe_softmax": (0, 1), "hardsigmoid": (0, 1),
    "sin": (-1, 1), "cos": (-1, 1), "erf": (-1, 1), "rsqrt": (0, inf), "sqrt": (0, inf), "softplus": (0, inf),
    "_log_softmax": (-inf, 0), "square": (0, inf),
}  # fmt: skip
"""Ranges that do not depend on the operand's."""
_RISING: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "exp": lambda x: exp(x) if x < 700 else inf,
    "ceil": lambda x: x if isinf(x) else float(ceil(x)), "detach": lambda x: x, "clone": lambda x: x,
}  # fmt: skip
"""Functions that rise, so that they map the ends of a range to the ends."""
_ZERO_AT_ZERO = frozenset((
    "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "tanh", "sin", "erf", "hardswish", "relu", "relu6",
    "native_dropout", "abs", "neg", "sqrt", "square", "expm1", "log1p", "tanhshrink", "softshrink", "asinh", "atan",
))  # fmt: skip
"""Functions that map 0 to 0 and nothing else is needed of them."""
_PASSING = frozenset(("amax", "amin", "max", "min", "max_pool2d_with_indices", "max_pool3d_with_indices", "sort"))
"""Operators whose first result holds elements of their first operand."""


def range_of(graph: Graph, node: Node) -> Range:
    """Return the lowest and the highest value that an element of `node` can have."""
    if not _is_followed(node):
        return ANYTHING
    waiting = list(node.inputs)
    while waiting:  # what a node is made of comes first; programs are too long for a function that calls itself
        number = waiting[-1]
        made_of = graph[number]
        missing = [n for n in made_of.inputs if n not in graph.ranges] if _is_followed(made_of) else []
        if number in graph.ranges or not missing:
            waiting.pop()
            graph.ranges.setdefault(number, _range(graph, made_of))
        waiting += missing
    return _range(graph, node)


def _is_followed(node: Node) -> bool:
    """Say whether the range of a node follows from those of its inputs, which all have one then."""
    if isinstance(node.options, OperatorCall):
        return bool(node.inputs) and packet(node.options.name) in _NAMED
    return bool(node.inputs) or node.kind == "constant"


def _range(graph: Graph, node: Node) -> Range:
    if not _is_followed(node):
        return ANYTHING
    operand_ranges = [graph.ranges[number] for number in node.inputs]
    low, high = ANYTHING
    if isinstance(node.options, Product):
        low, high = _of_product(graph, node, node.options, operand_ranges)
    elif isinstance(node.options, OperatorCall):
        low, high = _of_operator(node.options, operand_ranges)
    elif node.kind in _KINDS:
        low, high = _KINDS[node.kind](node, operand_ranges)
    return ANYTHING if isnan(low) or isnan(high) else (low, high)


_KINDS: dict[str, Callable[[Node, list[Range]], Range]] = {
    "constant": lambda node, _: (node.options, node.options),
    "view": lambda _, ranges: ranges[0],
    "turned": lambda _, ranges: ranges[0],
    "join": lambda _, ranges: (min(low for low, _ in ranges), max(high for _, high in ranges)),
    "spread": lambda _, ranges: (min(ranges[0][0], 0.0), max(ranges[0][1], 0.0)),
    "add": lambda _, ranges: (sum(low for low, _ in ranges), sum(high for _, high in ranges)),
}
"""Ranges of the kinds of node that are no operators."""


def _of_product(graph: Graph, node: Node, options: Product, operand_ranges: list[Range]) -> Range:
    if ANYTHING in operand_ranges and (0.0, 0.0) not in operand_ranges and node.inputs[0] != node.inputs[-1]:
        return ANYTHING
    sizes = {
        label: n
        for number, labels in zip(node.inputs, options.labels, strict=True)
        for label, n in zip(labels, graph[number].shape, strict=True)
    }
    count = prod(n for label, n in sizes.items() if label not in options.out)
    if len(node.inputs) == 2 and node.inputs[0] == node.inputs[1] and options.labels[0] == options.labels[1]:
        top = max(operand_ranges[0][0] ** 2, operand_ranges[0][1] ** 2)
        return _times((0.0, top), (options.factor * count,) * 2)
    return reduce(_times, operand_ranges, (options.factor * count,) * 2)


def _times(left: Range, right: Range) -> Range:
    ends = [0.0 if 0 in (a, b) else a * b for a in left for b in right]
    return min(ends), max(ends)


def _of_operator(stated: OperatorCall, operand_ranges: list[Range]) -> Range:
    name, (low, high) = packet(stated.name), operand_ranges[0]
    if name in _ZERO_AT_ZERO and stated.result == 0 and low == high == 0:
        return 0.0, 0.0
    if name in _RISING:
        return _RISING[name](low), _RISING[name](high)
    if name in _PASSING and stated.result == 0:
        return low, high
    return _OPERATORS[name](stated, operand_ranges) if name in _OPERATORS else _FIXED.get(name, ANYTHING)


def _compared(stated: OperatorCall, operand_ranges: list[Range]) -> Range:
    """Return whether a comparison with a number or a tensor holds everywhere, or nowhere."""
    (low, high), other, name = operand_ranges[0], _limit(stated.value("other"), operand_ranges), packet(stated.name)
    if other is None:
        return 0.0, 1.0
    below, above = other[0] - high, low - other[1]  # how far all of one lies from all of the other, at least
    if name in ("gt", "ge"):
        below, above = above, below
    holds = below > 0 or (below == 0 and name in ("le", "ge"))
    fails = above > 0 or (above == 0 and name in ("lt", "gt"))
    return (1.0, 1.0) if holds else (0.0, 0.0) if fails else (0.0, 1.0)


_OPERATORS: dict[str, Callable[[OperatorCall, list[Range]], Range]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge"), _compared),
    "_to_copy": lambda _, ranges: ranges[0] if set(ranges[0]) <= {0.0, 1.0} else ANYTHING,
    "hardtanh": lambda stated, ranges: _clamped(stated, ranges, "min_val", "max_val"),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), lambda stated, ranges: _clamped(stated, ranges, "min", "max")),
    "minimum": lambda _, ranges: (min(ranges[0][0], ranges[1][0]), min(ranges[0][1], ranges[1][1])),
    "maximum": lambda _, ranges: (max(ranges[0][0], ranges[1][0]), max(ranges[0][1], ranges[1][1])),
    "abs": lambda _, ranges: (max(ranges[0][0], -ranges[0][1], 0.0), max(-ranges[0][0], ranges[0][1])),
}
"""Ranges that depend on arguments or on several operands."""
_NAMED = frozenset((*_FIXED, *_RISING, *_ZERO_AT_ZERO, *_PASSING, *_OPERATORS))
"""Operators of which something is known."""


def _clamped(stated: OperatorCall, operand_ranges: list[Range], below: str, above: str) -> Range:
    """Return the range after it is cut at two limits, numbers or tensors; the upper one wins."""
    low, high = operand_ranges[0]
    floor, ceiling = (_limit(stated.value(name), operand_ranges) for name in (below, above))
    if floor is not None:
        low, high = max(low, floor[0]), max(high, floor[1])
    if ceiling is not None:
        low, high = min(low, ceiling[0]), min(high, ceiling[1])
    return low, high


def _limit(value: object, operand_ranges: list[Range]) -> Range | None:
    if isinstance(value, Slot):
        return operand_ranges[value.position]
    return (float(value), float(value)) if isinstance(value, (int, float)) else None
