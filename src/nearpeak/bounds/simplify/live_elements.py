"""Element-level liveness: elements that may be nonzero, and elements that an output of the step depends on."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from nearpeak.bounds.simplify import used_gradients
from nearpeak.bounds.simplify.affine_views import View, leaves_out, separate
from nearpeak.bounds.simplify.element_patterns import ElementSet, Patterns
from nearpeak.bounds.simplify.operand_facts import may_hold_nowhere, picked_dimensions
from nearpeak.bounds.simplify.operator_arguments import dimensions, free_dimensions
from nearpeak.bounds.simplify.picked_rows import ONE_HOT_ROWS
from nearpeak.bounds.simplify.product_sums import Product
from nearpeak.bounds.simplify.recurrent_parts import is_steps, needed_operand
from nearpeak.bounds.simplify.used_gradients import is_recurrent
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet

_ZERO_WHERE_HIDDEN = frozenset(("_softmax", "_safe_softmax", "exp", "exp2", "sigmoid"))
"""Functions that make 0 of what is hidden."""
_BLIND_TO_HIDDEN = _ZERO_WHERE_HIDDEN | frozenset(("amax", "max", "logsumexp", "argmax"))
"""Functions to which it makes no difference how far below everything else an element is."""
_KEEP_ZEROS = frozenset((
    "native_dropout", "dropout", "clone", "_to_copy", "relu", "relu6", "gelu", "silu", "tanh", "sin", "abs", "neg",
    "square", "sqrt", "sign", "leaky_relu", "mish", "elu", "erf", "hardswish", "expm1", "log1p",
    "threshold_backward", "gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward",
    "leaky_relu_backward", "native_dropout_backward", "elu_backward",
))  # fmt: skip
"""Functions whose first result is 0 where their first operand is."""
_ELEMENT_WISE = frozenset(("native_dropout", "native_dropout_backward"))
"""Calls of which an element needs the elements at its position only."""
_CHOICES = ("masked_fill", "where")
_CUTS = ("tril", "triu")
_DIAGONALS = ("trace", "diagonal_copy")
_PARTS = ("slice_backward", "select_backward")
_SCANS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
"""Operators of which an element takes those up to its position along a dimension."""
_TELLING = (*_CUTS, *_DIAGONALS, "diag_embed")


class ElementKnowledge(NamedTuple):
    """Known zero and unneeded elements of nodes; nodes without such knowledge are absent."""

    filled: Mapping[int, ElementSet]
    """Elements that may differ from 0."""
    needed: Mapping[int, ElementSet]
    """Elements that something needs."""


def alive(
    graph: Graph, live: Sequence[int], roots: Sequence[int], patterns: Patterns, *, may_repeat: bool = False
) -> ElementKnowledge:
    """Return what is known about the elements of live nodes.

    Args:
        live: nodes in rising order, inputs before what uses them.
        may_repeat: as many rows as a table has, picked by position, may all be the same one, as they may for reads;
            work is done for each position.
    """
    reader = _Reader(graph, patterns, may_repeat)
    for number in live:
        elements = patterns.both(graph.facts.get((number, "zero")), reader.filled_of(number))
        if elements is not None:
            reader.filled[number] = elements
    requests: dict[int, list[ElementSet]] = {number: [None] for number in roots}
    choices: dict[int, list[ElementSet]] = {}  # what data choose, which may be what is needed anyway
    needed: dict[int, ElementSet] = {}
    for number in reversed(live):
        chosen = choices.pop(number, [None])
        needed_elements = patterns.either(*requests.get(number, chosen))
        if needed_elements is not None:
            needed[number] = needed_elements
        tables = _tables(graph, number)
        for place, source in enumerate(graph[number].inputs):
            target = choices if place in tables or number not in requests else requests
            target.setdefault(source, []).append(reader.needed_of(number, needed_elements, place))
    return ElementKnowledge(reader.filled, needed)


def _tables(graph: Graph, number: int) -> set[int]:
    """Return the positions of the factors of a product from which others pick."""
    node = graph[number]
    if not isinstance(node.options, Product):
        return set()
    every = node.options.labels
    picked = [
        {labels[axis] for axis in picked_dimensions(graph, source)}
        for source, labels in zip(node.inputs, every, strict=True)
    ]
    return {
        place for place, labels in enumerate(every)
        if any(along.intersection(labels) for at, along in enumerate(picked) if at != place)
    }  # fmt: skip


def picks_all(graph: Graph, live: Sequence[int]) -> bool:
    """Say whether some rows by position are as many as their table has."""
    return any(_covers_table(graph[number]) for number in live)


def _covers_table(node: Node) -> bool:
    """Say whether a node picks at least as many rows by position as there are."""
    return _is_rows(node) and prod(node.shape[:-1]) >= node.shape[-1]


def _is_rows(node: Node) -> bool:
    """Say whether a node says which rows are picked by position."""
    return isinstance(node.options, OperatorCall) and node.options.name == ONE_HOT_ROWS


def tells(graph: Graph, live: Sequence[int]) -> bool:
    """Say whether anything is known about elements of some node."""
    if graph.facts or graph.picked:
        return True
    return any(
        (isinstance(node.options, OperatorCall) and (packet(node.options.name) in _TELLING or is_steps(node)))
        or (node.kind == "pointwise" and may_hold_nowhere(graph, number))
        or (node.kind in ("join", "patch") and any(graph[source].kind == "constant" for source in node.inputs))
        or (node.kind == "view" and _is_part_of_sums(graph, node))
        or (node.kind == "strided" and graph[node.inputs[0]].kind not in ("given", "patch"))
        or (node.kind == "product" and any(_is_padded(graph, source) for source in node.inputs))
        or (is_attention(node) and any("spread" in _kinds(graph, source) for source in node.inputs[:3]))
        for number, node in ((number, graph[number]) for number in live)
    )


def is_attention(node: Node) -> bool:
    """Say whether a node is an attention whose arguments are known."""
    options = node.options
    return isinstance(options, OperatorCall) and packet(options.name) == "attention" and bool(options.arguments)


def is_causal(graph: Graph, node: Node) -> bool:
    """Say whether a node is an attention of which each query sees the keys up to its own position."""
    if not is_attention(node) or not node.options.value("is_causal"):
        return False
    return graph[node.inputs[0]].shape[2] == graph[node.inputs[1]].shape[2]


def _kinds(graph: Graph, number: int) -> tuple[str, ...]:
    """Return the kinds of a node and, of a view, of what it shows."""
    node = graph[number]
    return (node.kind, graph[node.inputs[0]].kind) if node.kind == "view" else (node.kind,)


def _is_part_of_sums(graph: Graph, node: Node) -> bool:
    """Say whether a view leaves out elements of a product, an attention or a scan, or of what was put together."""
    source = graph[node.inputs[0]]
    kinds = ("join", "patch", "product", "turned")
    scans = isinstance(source.options, OperatorCall) and packet(source.options.name) in _SCANS
    return (source.kind in kinds or scans or is_attention(source)) and leaves_out(node.options, source.shape)


def _is_padded(graph: Graph, number: int) -> bool:
    """Say whether a factor lies among zeros, other than as windows that move over them, which are counted apart."""
    node = graph[number]
    if not isinstance(node.options, View):
        return node.kind == "spread"
    source = graph[node.inputs[0]]
    return source.kind == "spread" and separate(node.options, len(source.shape)) is not None


class _Reader:
    """Propagation of nonzero and needed elements through each kind of node."""

    def __init__(self, graph: Graph, patterns: Patterns, may_repeat: bool) -> None:
        self._graph, self._patterns, self._may_repeat = graph, patterns, may_repeat
        self.filled: dict[int, ElementSet] = {}

    def filled_of(self, number: int) -> ElementSet:
        """Return which elements of a node may differ from 0, derived from its inputs."""
        node, patterns = self._graph[number], self._patterns
        filled = [self.filled.get(source) for source in node.inputs]
        if isinstance(node.options, OperatorCall):
            return self._of_operator(node, node.options, filled)
        if node.kind == "constant":
            return patterns.empty(len(node.shape)) if node.options == 0 else None
        if isinstance(node.options, Product):
            return patterns.joined(list(zip(node.options.labels, filled, strict=True)), node.options.out)
        moves = node.kind == "spread" or any(source is not None for source in filled)
        return self._moved(node, filled) if moves else None

    def _moved(self, node: Node, filled: Sequence[ElementSet]) -> ElementSet:
        """Return which elements may differ from 0 of a node that only moves or adds up those of its inputs."""
        patterns, shapes = self._patterns, [self._graph[source].shape for source in node.inputs]
        ways = {
            "view": lambda: patterns.seen(filled[0], node.options),
            "join": lambda: patterns.chained(filled, shapes, node.options),
            "patch": lambda: patterns.patched(filled, node.options, node.shape),
            "turned": lambda: patterns.flipped(filled[0], node.options),
            "spread": lambda: patterns.spread(filled[0], node.options, shapes[0], node.shape),
            "add": lambda: patterns.either(*filled),
        }
        return ways[node.kind]() if node.kind in ways else None

    def _of_operator(self, node: Node, stated: OperatorCall, filled: Sequence[ElementSet]) -> ElementSet:
        """Return which elements of an operator's first result may differ from 0."""
        patterns, name = self._patterns, packet(stated.name)
        if stated.result > 0 or not node.inputs:
            return None
        elements: ElementSet = None
        if name in _ZERO_WHERE_HIDDEN:
            elements = self._fact(node.inputs[0], "hidden")
        elif name in _CUTS:
            elements = patterns.both(filled[0], self._cut(node))
        elif name == "diag_embed" and (stated.value("dim1"), stated.value("dim2")) == (-2, -1):
            elements = patterns.diagonal(len(node.shape), node.shape[-1], stated.value("offset") or 0)
        elif name in _PARTS:
            elements = self._of_part(node, stated)
        elif name == "_softmax_backward_data":
            elements = filled[self._place(stated, "output")]
        elif node.kind == "pointwise" and name in _CHOICES:
            elements = self._of_choice(node, stated, filled)
        elif name in _KEEP_ZEROS and self._graph[node.inputs[0]].shape == node.shape:
            elements = filled[0]
        return elements

    def _of_part(self, node: Node, stated: OperatorCall) -> ElementSet:
        """Return which elements may differ from 0 of the gradient of a part: those of the part."""
        index = stated.value("index")
        part = slice(stated.value("start"), stated.value("end"), stated.value("step"))
        part = part if index is None else slice(index, index + 1 or None)
        return self._patterns.span(node.shape, stated.value("dim"), part)

    def _of_choice(self, node: Node, stated: OperatorCall, filled: Sequence[ElementSet]) -> ElementSet:
        """Return which elements may differ from 0 of what a condition picks."""
        patterns = self._patterns
        if packet(stated.name) == "masked_fill":
            return patterns.both(filled[0], self._maybe(node, "mask", "true")) if stated.value("value") == 0 else None
        if len(node.inputs) < 3:
            return None
        yes, no = (filled[self._place(stated, key)] for key in ("self", "other"))
        picked = patterns.both(yes, self._maybe(node, "condition", "false"))
        return patterns.either(picked, patterns.both(no, self._maybe(node, "condition", "true")))

    def needed_of(self, number: int, needed: ElementSet, place: int) -> ElementSet:
        """Return which elements of an input a node needs when its own elements `needed` are needed."""
        graph, patterns, node = self._graph, self._patterns, self._graph[number]
        if is_steps(node):
            return needed_operand(graph, number, needed, place, patterns)
        if isinstance(node.options, OperatorCall):
            return self._of_arguments(node, node.options, needed, place)
        if isinstance(node.options, Product):
            return self._of_factors(node, needed, place)
        if isinstance(node.options, View):
            shape = graph[node.inputs[place]].shape
            shown = patterns.touched(node.options, shape) if leaves_out(node.options, shape) else None
            return patterns.both(patterns.behind(needed, node.options, shape), shown)
        shape = graph[node.inputs[place]].shape
        if node.kind == "join":
            begin = sum(graph[source].shape[node.options] for source in node.inputs[:place])
            return patterns.part(needed, node.options, begin, shape[node.options])
        ways: dict[str, Callable[[], ElementSet]] = {
            "turned": lambda: patterns.flipped(needed, node.options),
            "spread": lambda: patterns.gathered(needed, node.options, shape, node.shape),
            "patch": lambda: patterns.behind_patch(needed, node.options, place, node.shape),
            "strided": lambda: patterns.behind_strided(needed, *node.options),
            "add": lambda: needed,
        }
        return ways[node.kind]() if node.kind in ways else None

    def _of_factors(self, node: Node, needed: ElementSet, place: int) -> ElementSet:
        """Return which elements of a factor a product needs: those that meet others that may differ from 0."""
        others = [
            (source, labels)
            for position, (source, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True))
            if position != place
        ]
        if any(may_hold_nowhere(self._graph, source) for source, _ in others):
            return self._patterns.empty(len(node.options.labels[place]))
        filled = [(labels, self.filled.get(source) or self._first_choice(source)) for source, labels in others]
        return self._patterns.joined([*filled, (node.options.out, needed)], node.options.labels[place])

    def _first_choice(self, number: int) -> ElementSet:
        """Return the least that a selection picks: one position, the same in every row, as data may have it.

        More rows by position than there are in the table are not known to leave any out.
        """
        dimensions_, node = picked_dimensions(self._graph, number), self._graph[number]
        source = self._graph[node.inputs[0]] if node.kind == "view" else node
        table = prod(extent for axis, extent in enumerate(node.shape) if axis in dimensions_)
        if not self._may_repeat and _covers_table(source) and prod(node.shape) >= table * table:
            return None
        return self._patterns.first(node.shape, dimensions_) if dimensions_ else None

    def _of_arguments(self, node: Node, stated: OperatorCall, needed: ElementSet, place: int) -> ElementSet:
        """Return which elements of an operator's argument are needed."""
        patterns, name = self._patterns, packet(stated.name)
        every = node.kind == "pointwise" or name in _ELEMENT_WISE
        elements = needed if every else self._of_rows(node, needed, place)
        if name in _BLIND_TO_HIDDEN and place == 0:
            elements = patterns.both(self._fact(node.inputs[0], "hidden"), elements)
        elif name == "_softmax_backward_data":
            elements = self.filled.get(node.inputs[self._place(stated, "output")])
        elif name in _SCANS and node.shape:
            elements = patterns.until(needed, *dimensions(stated, len(node.shape)))
        elif name in _CUTS:
            elements = patterns.both(needed, self._cut(node))
        elif is_recurrent(node):
            elements = used_gradients.needed_operand(self._graph, node, place, self.filled, patterns)
        elif name == "index" and place == 0:
            elements = self._of_condition(node)
        elif name in _DIAGONALS:
            shape = self._graph[node.inputs[0]].shape
            square = len(shape) == 2 and shape[0] == shape[1]
            elements = patterns.diagonal(2, shape[0], stated.value("offset") or 0) if square else None
        elif node.kind == "pointwise" and name == "masked_fill" and place == 0:
            elements = patterns.both(needed, self._maybe(node, "mask", "true"))
        elif node.kind == "pointwise" and name == "where" and len(node.inputs) == 3:
            says = {self._place(stated, "self"): "false", self._place(stated, "other"): "true"}.get(place)
            elements = patterns.both(needed, self._maybe(node, "condition", says)) if says else needed
            nowhere = may_hold_nowhere(self._graph, node.inputs[self._place(stated, "condition")])
            elements = patterns.empty(len(node.shape)) if says == "false" and nowhere else elements
        return elements

    def _of_rows(self, node: Node, needed: ElementSet, place: int) -> ElementSet:
        """Return which elements of an operand are needed by an operator that takes rows of it apart."""
        moves = {axis: by[place] for axis, by in free_dimensions(self._graph, node).items() if place in by}
        if _is_rows(node) and self._graph[node.inputs[place]].shape == node.shape[:-1]:
            moves = {axis: axis for axis in range(len(node.shape) - 1)}
        if is_attention(node) and place in (0, 2):  # of its queries a row, of its values a column
            moves = {axis: axis for axis in range(3)} if place == 0 else {**moves, 3: 3}
        if is_causal(self._graph, node) and place in (1, 2):
            moves, needed = {**moves, 2: 2}, self._patterns.until(needed, 2)
        return self._patterns.apart(needed, moves, len(self._graph[node.inputs[place]].shape)) if moves else None

    def _of_condition(self, node: Node) -> ElementSet:
        """Return which elements one known condition on dimensions that follow each other may pick."""
        places = node.options.value("indices")
        if len(node.inputs) != 2 or not isinstance(places, tuple) or self._graph[node.inputs[1]].dtype != "bool":
            return None
        first = next(axis for axis, place in enumerate(places) if isinstance(place, Slot))
        axes = {axis: first + axis for axis in range(len(self._graph[node.inputs[1]].shape))}
        fact = self._fact(node.inputs[1], "false")
        return self._patterns.apart(fact, axes, len(self._graph[node.inputs[0]].shape))

    def _maybe(self, node: Node, argument: str, says: str) -> ElementSet:
        """Return the elements of an argument of which that is not known."""
        return self._fact(node.inputs[self._place(node.options, argument)], says)

    def _fact(self, number: int, says: str) -> ElementSet:
        """Return the elements of a node of which that is not known; broadcast ones as their source says."""
        node = self._graph[number]
        if node.kind == "constant" and says in ("true", "false"):
            return self._patterns.empty(len(node.shape)) if (node.options != 0) == (says == "true") else None
        views = []
        fact = self._graph.facts.get((number, says))
        while fact is None and isinstance(self._graph[number].options, View):
            views.append(self._graph[number].options)
            number = self._graph[number].inputs[0]
            fact = self._graph.facts.get((number, says))
        for options in reversed(views):
            fact = self._patterns.seen(fact, options)
        return fact

    def _cut(self, node: Node) -> ElementSet:
        lower = packet(node.options.name) == "tril"
        return self._patterns.triangle(node.shape, node.options.value("diagonal") or 0, lower=lower)

    def _place(self, stated: OperatorCall, name: str) -> int:
        """Return the position of an argument among the inputs; the first where it is no tensor."""
        value = stated.value(name)
        return value.position if isinstance(value, Slot) else 0
