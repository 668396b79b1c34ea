"""One operator call with the known value properties of its operands, as the propagation rules read it."""

from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import NamedTuple

from nearpeak.bounds.value_facts.value_fact import ValueFact, fact_of_number, moved_strides
from nearpeak.core.work.case import Case
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Argument, Call


class Operand(NamedTuple):
    """A tensor that a call reads."""

    name: str
    """Argument name, elements of a list numbered; position where the source names no arguments."""
    buffer: int
    """Its storage."""
    layout: Layout | None
    """How it lies there, where the source says so."""
    bytes: int
    """Distinct bytes of it that the call reads."""
    content: int
    """Number of the content that it holds; two operands with one number hold the same values."""
    fact: ValueFact
    """What is known of its values."""

    @property
    def distinct_count(self) -> int:
        """Elements without those that a broadcast repeats; 0 where the layout is not stated."""
        if self.layout is None:
            return 0
        return prod(n for n, stride in zip(self.layout.shape, self.layout.strides, strict=True) if stride or n == 0)


class FactSite(NamedTuple):
    """One call as input of a transfer rule."""

    case: Case
    """Its case."""
    packet: str
    """Operator without namespace, overload and the mark of in-place operators."""
    operands: tuple[Operand, ...]
    """Tensors in the order of the arguments."""
    numbers: Mapping[str, float]
    """Arguments that are numbers."""
    result: Layout | None
    """Layout of the first result, where the source states it."""
    dtype: str
    """Format of the first result."""

    def attribute(self, name: str) -> str | bool | None:
        """Return a choice of the case, none where it has none of that name."""
        return dict(self.case.attributes).get(name)

    def operand(self, *names: str) -> Operand | None:
        """Return the first operand of one of these names, none where there is none."""
        return next((operand for operand in self.operands if operand.name in names), None)

    def fact(self, position: int) -> ValueFact | None:
        """Return the facts of an operand by position; of a number that stands in place of the second, its own."""
        if position < len(self.operands):
            return self.operands[position].fact
        number = next((self.numbers[name] for name in ("other", "value") if name in self.numbers), None)
        return None if number is None else fact_of_number(number)

    def selects(self, operand: Operand) -> tuple[int, ...]:
        """Return the strides of the result along which it is as sparse as an operand of the same dimensions."""
        return moved_strides(operand.fact.selects, operand.layout, self.result)


@cache
def packet(name: str) -> str:
    """Return an operator's name without namespace, overload and the mark of in-place operators.

    Operators on quantised tensors keep their namespace: those tensors hold codes, not the numbers that they stand for.

    >>> packet("aten.add_.Tensor"), packet("aten._softmax.default"), packet("MatMul")
    ('add', '_softmax', 'MatMul')
    """
    parts = name.split(".")
    if parts[0] == "quantized":
        return name
    base = parts[1] if len(parts) > 1 else parts[0]
    return base if base.endswith("__") else base.rstrip("_")


def tensors_of(call: Call) -> Iterator[tuple[str, int, Layout | None, int]]:
    """Return name, storage, layout and read bytes of each tensor among the arguments of a call, in order."""
    sizes = {use.buffer: use.bytes for use in call.reads}
    if call.form is None:
        for position, use in enumerate(call.reads):
            yield str(position), use.buffer, None, use.bytes
        return
    layouts = [pair for name, value in call.form.arguments for pair in _layouts(name, value)]
    for (name, layout), buffer in zip(layouts, call.storages, strict=False):
        yield name, buffer, layout, sizes.get(buffer, 0)


def _layouts(name: str, value: Argument) -> Iterator[tuple[str, Layout]]:
    if isinstance(value, Layout):
        yield name, value
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            yield from _layouts(f"{name}[{place}]", item)


def numbers_of(call: Call) -> dict[str, float]:
    """Return the arguments of a call that are numbers."""
    arguments = call.form.arguments if call.form else ()
    return {name: float(value) for name, value in arguments if isinstance(value, (bool, int, float))}
