"""Small tensor programs twice over: as scalar programs of the machine, and as workloads for nearpeak."""

import random
from dataclasses import dataclass, field
from itertools import combinations

from tests.brute_force.machine import Program, Way

import nearpeak
from nearpeak.core.work.workload import Buffer, Call, Use, Workload

WORD_BYTES = 4


@dataclass(slots=True, kw_only=True)
class Scalars:
    """Scalar values under construction."""

    count: int = 0
    inputs: int = 0
    ways: list[Way] = field(default_factory=list)

    def fresh(self, number: int) -> list[int]:
        """Return that many new values."""
        self.count += number
        return list(range(self.count - number, self.count))

    def given(self, number: int) -> list[int]:
        """Return that many new inputs."""
        values = self.fresh(number)
        self.inputs |= union(values)
        return values

    def computed(self, *operands: int, product: bool = False) -> int:
        """Return a new value that is computed from `operands`; the product of a value is known by its number."""
        (value,) = self.fresh(1)
        self.ways.append(Way(target=value, operands=union(operands), products=product << value))
        return value

    def total(self, parts: list[int]) -> int:
        """Return the sum (or largest) of values, added up in any order and grouping."""
        return self._joined({(index,): value for index, value in enumerate(parts)}, len(parts))

    def dot(self, left: list[int], right: list[int]) -> int:
        """Return the sum of products, one multiply-add at a time in any order, or partial sums joined."""
        pairs = list(zip(left, right, strict=True))
        sums = {(index,): self.computed(*pair, product=True) for index, pair in enumerate(pairs)}
        found = self._joined(sums, len(pairs))
        for group, value in list(sums.items()):
            for index in group if len(group) > 1 else ():
                rest = tuple(one for one in group if one != index)
                operands = union((sums[rest], *pairs[index]))
                self.ways.append(Way(target=value, operands=operands, products=1 << sums[index,]))
        return found

    def _joined(self, sums: dict[tuple[int, ...], int], count: int) -> int:
        for size in range(2, count + 1):
            for group in combinations(range(count), size):
                (value,) = self.fresh(1)
                sums[group] = value
                for left_size in range(1, size // 2 + 1):
                    for left in combinations(group, left_size):
                        right = tuple(one for one in group if one not in left)
                        self.ways.append(Way(target=value, operands=union((sums[left], sums[right]))))
        return sums[tuple(range(count))]


def union(values: object) -> int:
    """Return the set of values as bits."""
    found = 0
    for value in values:  # type: ignore[attr-defined]
        found |= 1 << value
    return found


@dataclass(slots=True, kw_only=True)
class Part:
    """A tensor, or a dense view of one: its scalars and where they lie in a buffer."""

    values: list[int]
    buffer: int
    start: int = 0

    def use(self) -> Use:
        """Return what touching all of it touches of its buffer."""
        size = len(self.values) * WORD_BYTES
        begin = self.start * WORD_BYTES
        return Use(buffer=self.buffer, bytes=size, start_bytes=begin, stop_bytes=begin + size)


class Graph:
    """A step that is built call by call in both forms."""

    def __init__(self) -> None:
        """Begin without any call."""
        self.scalars = Scalars()
        self.kinds: list[str] = []
        self.sizes: list[int] = []
        self.calls: list[Call] = []
        self.results: list[tuple[list[Part], list[int]]] = []
        self.kept: dict[int, int] = {}

    def tensor(self, size: int, kind: str = "input") -> Part:
        """Return a tensor that is there before the step."""
        return self._stored(self.scalars.given(size), kind)

    def _stored(self, values: list[int], kind: str = "activation") -> Part:
        self.kinds.append(kind)
        self.sizes.append(len(values))
        return Part(values=values, buffer=len(self.kinds) - 1)

    def call(self, reads: list[Part], values: list[int], case: nearpeak.Case, into: Part | None = None) -> Part:
        """Note one call with its result, written in place `into` a tensor or to a new one."""
        made = self._stored(values) if into is None else Part(values=values, buffer=into.buffer, start=into.start)
        uses = tuple(part.use() for part in reads)
        self.calls.append(Call(case=case, operator=case.op, phase="forward", reads=uses, writes=(made.use(),)))
        self.results.append((reads, values))
        return made

    def map2(self, left: Part, right: Part, *, in_place: bool = False) -> Part:
        """Return left + right, element by element; one element on the right serves all."""
        single = len(right.values) == 1
        others = right.values * (len(left.values) if single else 1)
        pairs = list(zip(left.values, others, strict=True))
        values = [self.scalars.computed(*pair) for pair in pairs]
        same = left.values == right.values
        case = nearpeak.case(
            "elementwise", elements=len(values), function="add", b=0 if same else len(right.values), dtype="fp32"
        )
        return self.call([left] if same else [left, right], values, case, left if in_place else None)

    def map1(self, x: Part) -> Part:
        """Return a function of each element."""
        values = [self.scalars.computed(value) for value in x.values]
        return self.call([x], values, nearpeak.case("elementwise", elements=len(values), function="exp", dtype="fp32"))

    def copy(self, x: Part) -> Part:
        """Return a copy."""
        values = [self.scalars.computed(value) for value in x.values]
        return self.call([x], values, nearpeak.case("copy", elements=len(values), dtype="fp32"))

    def sum(self, x: Part) -> Part:
        """Return the sum of all elements."""
        total = self.scalars.total(x.values) if len(x.values) > 1 else self.scalars.computed(*x.values)
        return self.call([x], [total], nearpeak.case("reduce", outputs=1, reduced=len(x.values), dtype="fp32"))

    def softmax(self, x: Part, rows: int = 1) -> Part:
        """Return the softmax of each row by its definition: largest, exponentials, their sum, quotients."""
        columns, values = len(x.values) // rows, []
        for row in range(rows):
            values += self._softmax_row(x.values[row * columns : (row + 1) * columns])
        return self.call([x], values, nearpeak.case("softmax", rows=rows, columns=columns, dtype="fp32"))

    def _softmax_row(self, row: list[int]) -> list[int]:
        scalars = self.scalars
        largest = scalars.total(row) if len(row) > 1 else row[0]
        shifted = [scalars.computed(value, largest) for value in row]
        whole = scalars.total(shifted) if len(row) > 1 else shifted[0]
        return [scalars.computed(value, whole) for value in shifted]

    def normalised(self, x: Part) -> Part:
        """Return x over the root of its mean square; the last element of the sum is turned into the root."""
        root = self.scalars.computed(self.scalars.dot(x.values, x.values))
        values = [self.scalars.computed(value, root) for value in x.values]
        size = {"rows": 1, "hidden": len(values)}
        return self.call([x], values, nearpeak.case("rms_norm", dtype="fp32", affine=False, **size))

    def gemm(self, a: Part, b: Part, m: int, n: int, k: int) -> Part:
        """Return A[m,k] B[k,n]."""
        rows = [a.values[i * k : (i + 1) * k] for i in range(m)]
        columns = [b.values[j::n] for j in range(n)]
        values = [self.scalars.dot(row, column) for row in rows for column in columns]
        return self.call([a, b], values, nearpeak.case("gemm", m=m, n=n, k=k, dtype="fp32"))

    def conv(self, x: Part, weight: Part, stride: int) -> Part:
        """Return the convolution of one channel in one dimension, without padding."""
        taps = len(weight.values)
        starts = range(0, len(x.values) - taps + 1, stride)
        values = [self.scalars.dot(x.values[start : start + taps], weight.values) for start in starts]
        sizes = {"w": len(x.values), "kw": taps, "sw": stride}
        case = nearpeak.case("conv", batch=1, in_channels=1, out_channels=1, dtype="fp32", **sizes)
        return self.call([x, weight], values, case)

    def recurrent(self, x: Part) -> Part:
        """Return all states of a plain cell of one unit, without biases and first state, that is tanh(w x + u h)."""
        w, u = self.tensor(1, "weight"), self.tensor(1, "weight")
        states: list[int] = []
        for value in x.values:
            inner = self.scalars.computed(value, *w.values, product=True)
            if states:
                inner = self.scalars.computed(inner, states[-1], *u.values, product=True)
            states.append(self.scalars.computed(inner))
        case = nearpeak.case(
            "recurrent", batch=1, steps=len(x.values), features=1, hidden=1, dtype="fp32", cell="rnn_tanh",
            bias=False, state=False, written=len(x.values),
        )  # fmt: skip
        return self.call([x, w, u], states, case)

    def finished(self, outputs: list[Part]) -> tuple[Program, Workload]:
        """Return both forms, with `outputs` returned; a part of a tensor may be returned alone."""
        wanted = union(value for part in outputs for value in part.values)
        for number, (call, (_, values)) in enumerate(zip(self.calls, self.results, strict=True)):
            buffer = call.writes[0].buffer
            again = any(later.writes[0].buffer == buffer for later in self.calls[number + 1 :])
            if self.kinds[buffer] in ("input", "weight") and not again:  # written in place: the caller sees it
                wanted |= union(values)
        for part in outputs:
            if self.kinds[part.buffer] == "activation":
                self.kinds[part.buffer] = "output"
            self.kept.setdefault(part.buffer, 0)
            self.kept[part.buffer] += len(part.values) * WORD_BYTES
        program = Program(
            inputs=self.scalars.inputs, outputs=wanted, ways=tuple(self.scalars.ways), required=self._required(wanted)
        )
        return program, Workload(name="random", step="forward", calls=tuple(self.calls), buffers=self._buffers())

    def _required(self, wanted: int) -> int:
        """Return all results of calls that some output depends on: nearpeak assumes that each is evaluated whole."""
        needed, required = wanted, 0
        for reads, values in reversed(self.results):
            if union(values) & needed:
                required |= union(values)
                needed |= union(value for part in reads for value in part.values)
        return required & ~wanted

    def _buffers(self) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(bytes=size * WORD_BYTES, kind=kind, kept_bytes=self._kept(number, kind))
            for number, (kind, size) in enumerate(zip(self.kinds, self.sizes, strict=True))
        )

    def _kept(self, number: int, kind: str) -> int | None:
        return self.kept.get(number) if kind == "output" else None


def random_graph(seed: int) -> tuple[Program, Workload]:
    """Return a random step of up to four calls on tensors of up to three elements."""
    draw = random.Random(seed)
    graph = Graph()
    parts = [graph.tensor(draw.randint(1, 3), draw.choice(["input", "weight"])) for _ in range(draw.randint(1, 2))]
    for _ in range(draw.randint(1, 4)):
        parts.append(_random_call(graph, parts, draw))
    made = parts[-draw.randint(1, min(2, len(graph.calls))) :]
    outputs = [part for part in made if draw.random() < 0.8] or [made[-1]]
    unique = {part.buffer: part for part in outputs if graph.kinds[part.buffer] == "activation"}
    found = graph.finished([_maybe_part(part, draw) for part in unique.values()])
    return found if found[0].outputs else random_graph(seed + 10**9)  # nothing was left to return


def _maybe_part(part: Part, draw: random.Random) -> Part:
    """Return the tensor, or now and then only its beginning."""
    if len(part.values) == 1 or draw.random() < 0.8:
        return part
    return Part(values=part.values[:1], buffer=part.buffer, start=part.start)


def _random_call(graph: Graph, parts: list[Part], draw: random.Random) -> Part:
    x = draw.choice(parts)
    given = graph.kinds[x.buffer] in ("input", "weight")
    if given and len(x.values) > 1 and draw.random() < 0.3:  # a view of an input
        x = Part(values=x.values[1:], buffer=x.buffer, start=x.start + 1)
    kind = draw.choice(["map1", "map2", "map2", "sum", "softmax", "copy", "gemm", "in_place", "normalised"])
    if kind in ("map2", "in_place"):
        fitting = [one for one in parts if len(one.values) in (1, len(x.values))]
        other = draw.choice(fitting) if fitting else x
        whole = x.start == 0 and len(x.values) == graph.sizes[x.buffer]
        made = graph.map2(x, other, in_place=kind == "in_place" and whole)
        if kind == "in_place" and whole:  # the old content is gone
            parts[:] = [one for one in parts if one.buffer != x.buffer]
        return made
    if kind == "gemm":
        other = draw.choice(parts)
        if other.buffer != x.buffer and len(other.values) == len(x.values):
            return graph.gemm(x, other, 1, 1, len(x.values))
        return graph.gemm(x, other, len(x.values), len(other.values), 1) if other.buffer != x.buffer else graph.map1(x)
    if kind in ("softmax", "normalised") and len(x.values) < 2:
        return graph.map1(x)
    return getattr(graph, kind)(x)
