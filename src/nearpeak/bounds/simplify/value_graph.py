"""Value graph of a step: equal computations share one node, and each added node is rewritten by algebraic rules."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

KINDS = (
    "given", "constant", "view", "product", "add", "spread", "turned", "join", "patch", "strided", "pointwise", "call",
)  # fmt: skip
"""Kinds of node, explained at Node."""


class Node(NamedTuple):
    """One tensor value and how it follows from others.

    Kinds: `given` (what a storage holds before the step), `constant`, `view` (elements of another node, moved),
    `product` (a sum over products of its inputs, labels shared), `add`, `spread` (placed among zeros), `turned` (order
    reversed along dimensions), `join` (concatenated), `patch` (a storage of which a part was written), `strided`
    (elements of a storage in an order that no view describes), `pointwise` and `call` (an operator as it was called).
    """

    kind: str
    """What it is."""
    inputs: tuple[int, ...]
    """Nodes that it is made of."""
    shape: tuple[int, ...]
    """Extent of each dimension."""
    dtype: str
    """Number format of the result."""
    options: Any = ()
    """What else it depends on; its type depends on the kind."""


class OperatorCall(NamedTuple):
    """Options of `pointwise` and `call`: an operator with its arguments, tensors replaced by their position."""

    name: str
    """Name under which the source called it."""
    arguments: tuple[tuple[str, Hashable], ...]
    """Names and values."""
    result: int = 0
    """Which of its results the node is."""
    serial: int = -1
    """Number of the call where two calls of the same operator differ, as those that draw numbers do."""

    def value(self, name: str) -> Any:
        """Return the argument `name`, none where it has none."""
        return next((value for key, value in self.arguments if key == name), None)


class Slot(NamedTuple):
    """Stands for a tensor among the arguments."""

    position: int
    """Position among the node's inputs."""


Rule = Callable[["Graph", Node], int | None]
"""Gives the node that replaces one which is about to be added, none where it does not apply."""


class AppliedRewrite(NamedTuple):
    """A rewrite that was applied."""

    name: str
    """File of the rewrite."""
    call: int
    """Position of the call during whose reading it was applied; -1 when later."""


class Graph:
    """Nodes by number; adding one applies the rewrites that are registered for its kind."""

    def __init__(self, rules: Mapping[tuple[str, str], Sequence[tuple[str, Rule]]]) -> None:
        """Start empty; `rules` gives names and rules by kind of node and kind of its first input."""
        self.nodes: list[Node] = []
        self.fired: list[AppliedRewrite] = []
        self.owner: dict[int, int] = {}
        self.parts: dict[int, tuple[int, int, int]] = {}
        self.separated: dict[int, int] = {}
        self.call = -1
        self._known: dict[Node, int] = {}
        self.facts: dict[tuple[int, str], Any] = {}
        self.picked: dict[int, tuple[int, ...]] = {}
        self.carriers: dict[int, str] = {}
        self.resized: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.gradients: dict[int, tuple[int, int]] = {}
        self.ranges: dict[int, tuple[float, float]] = {}
        self._labels = 0
        self._rules = rules

    def __getitem__(self, number: int) -> Node:
        """Return the node of that number."""
        return self.nodes[number]

    def add(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], dtype: str, options: Any = ()) -> int:
        """Return the number of the node, or of what a rewrite puts in its place."""
        node = Node(kind, inputs, shape, dtype, options)
        number = self._known.get(node)
        if number is None:
            number = self._known[node] = self._rewritten(node)
        elif kind in ("product", "call") and self.owner.get(number, self.call) != self.call >= 0:
            self.fired.append(AppliedRewrite("computed_once", self.call))
        return number

    def label(self) -> int:
        """Return a label that no term has yet."""
        self._labels += 1
        return self._labels

    def constant(self, value: float, shape: tuple[int, ...], dtype: str) -> int:
        """Return the node that holds `value` everywhere."""
        return self.add("constant", (), shape, dtype, float(value))

    def _rewritten(self, node: Node) -> int:
        source = self.nodes[node.inputs[0]].kind if node.inputs else ""
        for name, rule in self._rules.get((node.kind, source), ()):
            replacement = rule(self, node)
            if replacement is not None:
                self.fired.append(AppliedRewrite(name, self.call))
                return replacement
        self.nodes.append(node)
        number = len(self.nodes) - 1
        if self.call >= 0:
            self.owner[number] = self.call
        return number

    def add_part(self, whole: int, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: Any) -> int:
        """Return a node that computes a part of the node `whole`, whose call does that part of its arithmetic.

        Where a rewrite puts other nodes in its place, those of its kind do so: the call that is read does not.
        """
        count = len(self.nodes)
        part = self.add(kind, inputs, shape, self.nodes[whole].dtype, options)
        for made in range(count, len(self.nodes)):
            if self.nodes[made].kind == kind:
                self.share(whole, made, prod(self.nodes[made].shape), prod(self.nodes[whole].shape))
        return part

    def share(self, whole: int, part: int, elements: int, of: int) -> None:
        """Say that the node `part` does that part of the arithmetic of the node `whole`."""
        if whole in self.owner:
            self.parts[part] = (self.owner[whole], elements, of)
        elif whole in self.parts:
            call, before, total = self.parts[whole]
            self.parts[part] = (call, before * elements, total * of)
        if part in self.parts:
            self.owner.pop(part, None)

    def live(self, roots: Iterable[int]) -> list[int]:
        """Return what the roots depend on, in rising order: inputs before what uses them."""
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting.extend(self.nodes[number].inputs)
        return sorted(seen)
