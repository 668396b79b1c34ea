"""Construction of the value graph from the calls of a step, storage by storage."""

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, repeated, stored, view
from nearpeak.bounds.simplify.element_patterns import Patterns
from nearpeak.bounds.simplify.operand_facts import note_facts
from nearpeak.bounds.simplify.patch_chain import PatchChain
from nearpeak.bounds.simplify.used_gradients import operands_of
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import FactSite, packet
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Argument, Call, CallLayout, Known, Workload
from nearpeak.ops import OPS

_RECENT = 4096
"""Results kept of what layers of a model do alike."""


class Ref(NamedTuple):
    """A tensor among the arguments of a call."""

    node: int
    """What it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A call as input of an operator's lift function."""

    graph: Graph
    """Where nodes are added."""
    packet: str
    """Operator without namespace and overload."""
    args: Mapping[str, object]
    """Arguments by name; tensors as references to nodes."""
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each result."""
    dtype: str
    """Format of the first result."""

    def node(self, name: str) -> int:
        """Return the node of a tensor argument."""
        argument = self.args[name]
        assert isinstance(argument, Ref)
        return argument.node

    def is_tensor(self, name: str) -> bool:
        """Say whether the argument is a tensor."""
        return isinstance(self.args.get(name), Ref)

    def number(self, name: str, default: float) -> float:
        """Return an argument that is a number."""
        argument = self.args.get(name)
        return float(argument) if isinstance(argument, (int, float)) else default

    def numbers(self, name: str, count: int) -> tuple[int, ...]:
        """Return an argument that is a list of whole numbers, one standing for `count` alike."""
        argument = self.args.get(name)
        items = tuple(int(str(item)) for item in argument) if isinstance(argument, tuple) else ()
        return items * count if len(items) == 1 else items


Lift = Callable[[Site], list[int] | None]
"""Gives the nodes of a call's results, none where the call is not of that kind."""


class CallSignature(NamedTuple):
    """A call signature, split once for all calls that share it."""

    tensors: tuple[Layout, ...]
    """Layout of each tensor among the arguments, in order."""
    arguments: tuple[tuple[str, Hashable], ...]
    """Names and values, tensors replaced by their position."""
    results: tuple[Layout, ...]
    """Layout of each result."""


class Reader:
    """Contents of each storage after the calls so far."""

    def __init__(
        self, workload: Workload, graph: Graph, patterns: Patterns | None, sites: Sequence[FactSite | None]
    ) -> None:
        """Start before the first call."""
        self.workload, self.graph, self.patterns, self.sites = workload, graph, patterns, sites
        self.known: dict[int, list[Known]] = {}
        for fact in workload.known if patterns else ():
            self.known.setdefault(fact.call, []).append(fact)
        self.contents: dict[int, tuple[int, Layout]] = {}
        self._views: dict[tuple[int, Layout, Layout], int] = {}
        self._forms: dict[int, CallSignature] = {}
        self._patches = PatchChain()
        self.effects: list[int] = []
        """What unknown calls read that give no tensor: some effect needs it."""

    def form(self, form: CallLayout) -> CallSignature:
        """Return the tensors, arguments and results of a call signature."""
        if id(form) not in self._forms:
            self._forms[id(form)] = _taken_apart(form)
        return self._forms[id(form)]

    def read(self, buffer: int, layout: Layout) -> int:
        """Return what the tensor `layout`, without an alias, in the storage holds."""
        if 0 in layout.shape:
            return self.graph.constant(0.0, layout.shape, layout.dtype)
        content, lies = self.contents.get(buffer) or self.given(buffer, layout.dtype)
        return self._view(content, lies, layout)

    def write(self, buffer: int, node: int, layout: Layout) -> None:
        """Note that the tensor `layout`, without an alias, in the storage now holds `node`."""
        if 0 in layout.shape:
            return
        size = self.workload.buffers[buffer].bytes
        if _fills(layout, size):
            self.contents[buffer] = (node, layout)
            return
        content, lies = self.contents.get(buffer) or self.given(buffer, layout.dtype)
        flat = _flat(size, layout.dtype)
        patch = self.graph.add("patch", (content, node), flat.shape, layout.dtype, (lies, layout))
        self._patches.add(patch, content, lies, layout)
        self.contents[buffer] = (patch, flat)

    def _view(self, content: int, lies: Layout, wanted: Layout) -> int:
        """Return a tensor of a storage; one that was written into a part of it is found again."""
        if lies == wanted and self.graph.nodes[content].kind != "patch":
            return content
        key = (content, lies, wanted)
        if key not in self._views:
            self._views[key] = self._found(content, lies, wanted)
        return self._views[key]

    def _found(self, content: int, lies: Layout, wanted: Layout) -> int:
        if lies.dtype == wanted.dtype:
            content, lies = self._patches.behind(content, lies, wanted)
            node = self.graph[content]
            if node.kind == "patch" and node.options[1] == wanted:
                return node.inputs[1]
        if lies == wanted:
            return content
        made = stored(self.graph, content, lies, wanted) if lies.dtype == wanted.dtype else None
        if made is None:
            return self.graph.add("strided", (content,), wanted.shape, wanted.dtype, (lies, wanted))
        return made

    def given(self, buffer: int, dtype: str) -> tuple[int, Layout]:
        """Return what the storage holds before the step, as a row of elements."""
        flat = _flat(self.workload.buffers[buffer].bytes, dtype)
        value = self.workload.buffers[buffer].value
        if value is not None:
            return self.graph.constant(value, flat.shape, dtype), flat
        return self.graph.add("given", (), flat.shape, dtype, buffer), flat


def read_step(
    workload: Workload, graph: Graph, lifts: Mapping[str, Lift], patterns: Patterns | None = None,
    sites: Sequence[FactSite | None] = (),
) -> list[int]:  # fmt: skip
    """Add the nodes of the whole step to `graph` and return those that outlive it.

    Args:
        patterns: opens what is known of elements; none leaves that out.
        sites: what is known of the operands of each call.
    """
    reader = Reader(workload, graph, patterns, sites)
    for index, call in enumerate(workload.calls):
        graph.call = index
        if call.form is None:
            _unstated(reader, call, index)
        else:
            _stated(reader, call, index, lifts)
    graph.call = -1
    return _roots(reader)


def _unstated(reader: Reader, call: Call, index: int) -> None:
    """Record that a call with unknown arguments wrote unknown contents to its storages."""
    if not call.writes and call.case is not None:
        return
    inputs = []
    for use in call.reads:
        flat = _flat(reader.workload.buffers[use.buffer].bytes, "uint8")
        inputs.append((reader.contents.get(use.buffer) or reader.given(use.buffer, flat.dtype))[0])
    if not call.writes:
        reader.effects += inputs
        return
    _fill(reader, {use.buffer for use in call.writes}, tuple(inputs), index)


def _fill(reader: Reader, buffers: Set[int], inputs: tuple[int, ...], index: int) -> None:
    """Record that storages hold unknown functions of the inputs and of their earlier contents.

    The operator of the call has no name here: no rewrite for it holds for storages.
    """
    graph, options = reader.graph, OperatorCall("nearpeak.unknown.default", (), -1, index)
    before = [reader.contents[buffer][0] for buffer in sorted(buffers) if buffer in reader.contents]
    whole = graph.add("call", (*inputs, *before), (), "uint8", options)
    for place, buffer in enumerate(sorted(buffers)):
        flat = _flat(reader.workload.buffers[buffer].bytes, "uint8")
        part = graph.add("call", (whole,), flat.shape, flat.dtype, options._replace(result=place))
        reader.contents[buffer] = (part, flat)


def _stated(reader: Reader, call: Call, index: int, lifts: Mapping[str, Lift]) -> None:
    assert call.form is not None
    form = reader.form(call.form)
    operands, targets = call.storages[: len(form.tensors)], call.storages[len(form.tensors) :]
    inputs = tuple(map(reader.read, operands, form.tensors))
    site = reader.sites[index] if reader.sites else None
    if site is not None:
        inputs = tuple(
            note_facts(reader.graph, number, operand, site)
            for number, operand in zip(inputs, site.operands, strict=True)
        )
    for fact in reader.known.get(index, ()):
        assert reader.patterns is not None
        number, elements = inputs[fact.tensor], reader.patterns.without(fact.pattern)
        reader.graph.facts[number, fact.says] = elements
        shape = reader.graph[number].shape
        wide = View(tuple(((axis, 1, n),) for axis, n in enumerate(shape) if n > 1), (0,) * len(shape))
        if len(wide.groups) < len(shape):  # products take factors without dimensions of one element
            factor = view(reader.graph, number, *wide)
            reader.graph.facts.setdefault((factor, fact.says), reader.patterns.seen(elements, wide))
    if call.case is None and not call.writes:
        reader.effects += inputs
    results = _results(reader, call, index, form, inputs, lifts)
    written = {use.buffer for use in call.writes}
    for buffer, layout, node in zip(targets, form.results, results, strict=True):
        if buffer in written or buffer not in operands:
            reader.write(buffer, node, layout)
    if hidden := written.difference(targets):
        _fill(reader, hidden, inputs, index)


def _results(
    reader: Reader, call: Call, index: int, form: CallSignature, inputs: tuple[int, ...], lifts: Mapping[str, Lift]
) -> list[int]:
    """Return the nodes of the results: read as algebra where that is known, as the operator itself otherwise."""
    graph, layouts = reader.graph, form.results
    name = packet(call.operator)
    lift = lifts.get(name)
    shapes = tuple(layout.shape for layout in layouts)
    if lift is not None and layouts and 0 not in shapes[0]:
        args = {key: _with_nodes(value, inputs) for key, value in form.arguments}
        site = Site(graph=graph, packet=name, args=args, shapes=shapes, dtype=layouts[0].dtype)
        made = lift(site)
        if made is not None and tuple(graph[number].shape for number in made) == shapes:
            return list(made)
    serial = (
        index
        if (call.case is None or OPS[call.case.op].draws or any(k == "dropout_p" and v for k, v in form.arguments))
        else -1
    )
    kind = "call"
    if len(shapes) == 1 and call.case is not None and (call.case.op, call.case.phase) in _BY_ELEMENT:
        spread = _aligned(graph, inputs, shapes[0], name)
        kind, inputs = ("pointwise", spread) if spread else (kind, inputs)
    stated = OperatorCall(call.operator, form.arguments, 0, serial)
    return [
        graph.add(
            kind, operands_of(graph, stated, inputs, place), layout.shape, layout.dtype, stated._replace(result=place)
        )
        for place, layout in enumerate(layouts)
    ]


_BY_ELEMENT = (("elementwise", "forward"), ("cast", "forward"))
"""Operation and phase of calls that pair elements at the same position."""
_SHAPED = frozenset(("glu", "outer", "ger", "addr", "prelu", "linalg_cross", "rrelu_with_noise"))
"""Operators that count as element-wise, yet do not pair elements at the same position."""


def _aligned(graph: Graph, inputs: Sequence[int], shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return the operands broadcast to `shape`; none where they do not broadcast."""
    for number in inputs:
        own_shape = graph[number].shape
        if len(own_shape) > len(shape) or any(
            n not in (1, m) for n, m in zip(own_shape[::-1], shape[::-1], strict=False)
        ):
            return ()
    return () if name in _SHAPED else tuple(repeated(graph, number, shape) for number in inputs)


def _taken_apart(form: CallLayout) -> CallSignature:
    tensors: list[Layout] = []

    def replaced(value: Argument) -> Hashable:
        if isinstance(value, Layout):
            tensors.append(value._replace(alias=0))
            return Slot(len(tensors) - 1)
        return tuple(replaced(item) for item in value) if isinstance(value, tuple) else value

    arguments = tuple((name, replaced(value)) for name, value in form.arguments)
    return CallSignature(tuple(tensors), arguments, tuple(layout._replace(alias=0) for layout in form.results))


def _with_nodes(value: object, inputs: Sequence[int]) -> object:
    """Return an argument with the nodes of its tensors in place of their positions."""
    if isinstance(value, Slot):
        return Ref(inputs[value.position])
    return tuple(_with_nodes(item, inputs) for item in value) if isinstance(value, tuple) else value


def _roots(reader: Reader) -> list[int]:
    """Return the nodes that outlive the step: returned tensors and the contents of persistent storages."""
    buffers = reader.workload.buffers
    returned: dict[int, list[Layout]] = {}
    for number, layout in reader.workload.returned:
        returned.setdefault(number, []).append(layout)
    roots = list(reader.effects)
    for number, (node, _) in reader.contents.items():
        if buffers[number].kind == "output" and number in returned:
            roots += [reader.read(number, layout._replace(alias=0)) for layout in returned[number]]
        elif buffers[number].kind in ("weight", "state", "kv_cache", "input", "output"):
            roots.append(node)
    return roots


def _flat(size_bytes: int, dtype: str) -> Layout:
    return Layout((size_bytes * 8 // dtype_of(dtype).bits_count,), (1,), dtype, 0, 0)


@lru_cache(maxsize=_RECENT)
def _fills(layout: Layout, size_bytes: int) -> bool:
    """Say whether the tensor is the whole of a storage of that size, in some order of its dimensions."""
    count = 1
    for extent in layout.shape:
        count *= extent
    elements = count
    bits = elements * dtype_of(layout.dtype).bits_count
    return not layout.offset and bits == size_bytes * 8 and _dense(layout)


def _dense(layout: Layout) -> bool:
    """Say whether the tensor fills a span without gaps or repeats."""
    pairs = sorted((s, n) for s, n in zip(layout.strides, layout.shape, strict=True) if n > 1)
    reached = 1
    for stride, extent in pairs:
        if stride != reached:
            return False
        reached *= extent
    return True
