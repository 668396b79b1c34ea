"""Rectangular pieces of program-made tensors, computed for real without materialising the whole tensor."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from nearpeak.frontends.known_values.value_spans import Span, anything, has_span, span_of

WHOLE_BYTES = 2**25
"""Largest tensor that is materialised, for operators that cannot be computed piece by piece."""
SPANNED_BYTES = 2**22
"""The same limit for partly data-dependent tensors, whose lower and upper bounds are both held."""

_PIECEWISE = frozenset({
    "_to_copy", "clone", "masked_fill", "masked_fill_", "where", "floor_divide", "rsub", "copy_", "fill_", "zero_",
})  # fmt: skip
"""Computed element by element, although their schema does not say so."""
_TRIANGLES = frozenset({"tril", "triu", "tril_", "triu_"})
MOST_MIXED = 16
"""Operators applied to data beyond which a tensor counts as data entirely; masks need few."""


class TooLargeError(Exception):
    """A tensor would have to be made whole and is too large for that."""


class Made(dict[int, Any]):
    """Tensors materialised for one query, by identity of their origin."""


class Part(NamedTuple):
    """A view of a storage whose content has a known origin."""

    origin: Any
    """Origin of the content."""
    shape: tuple[int, ...]
    """Extents of the view."""
    strides: tuple[int, ...]
    """Elements to step per dimension."""
    offset: int
    """Elements from the start of the storage."""

    def block(self, starts: Sequence[int], sizes: Sequence[int], made: Made) -> Any:
        """Return a piece of the view, as a real tensor.

        Raises:
            TooLargeError: the storage's content can only be made whole, and is too large.
        """
        offset = self.offset + sum(s * stride for s, stride in zip(starts, self.strides, strict=True))
        if _elements(self.origin.shape) > 2**16:
            piece = self._within(offset, sizes, made)
            if piece is not None:
                return piece
        whole = _whole(self.origin, made)
        return whole.as_strided(tuple(sizes), self.strides, offset)

    def all(self, made: Made) -> Any:
        """Return the whole view, as a real tensor."""
        return self.block([0] * len(self.shape), self.shape, made)

    def _within(self, offset: int, sizes: Sequence[int], made: Made) -> Any:
        """Return the piece as a rectangle of the origin; none when it is not one."""
        dims = sorted(
            (stride, -index)
            for index, stride in enumerate(self.origin.strides)
            if self.origin.shape[index] > 1 and stride > 0
        )
        starts, counts = [0] * len(self.origin.shape), [1] * len(self.origin.shape)
        for stride, negative in reversed(dims):
            starts[-negative], offset = divmod(offset, stride)
        place = {stride: -negative for stride, negative in dims}
        order = [
            place.get(stride, -1) if size > 1 and stride else None
            for size, stride in zip(sizes, self.strides, strict=True)
        ]
        named = [index for index in order if index is not None]
        if offset or -1 in named or len(set(named)) < len(named):
            return None
        for index, size in zip(order, sizes, strict=True):
            if index is not None:
                counts[index] = size
        if any(s + n > extent for s, n, extent in zip(starts, counts, self.origin.shape, strict=True)):
            return None
        piece = self.origin.block(starts, counts, made)
        wide = [index for index, count in enumerate(counts) if count > 1]
        piece = piece.reshape([counts[index] for index in wide]).permute([wide.index(index) for index in named])
        return piece.reshape([1 if i is None else n for i, n in zip(order, sizes, strict=True)]).expand(tuple(sizes))


class Given(NamedTuple):
    """Existing values: a constant of the program or a buffer of a real module."""

    real: Any
    """The tensor."""

    @property
    def mixed(self) -> int:
        """Nothing of it is data."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self.real.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements to step per dimension."""
        return tuple(self.real.stride())

    @property
    def bytes(self) -> int:
        """Size."""
        return int(self.real.nbytes)

    def block(self, starts: Sequence[int], sizes: Sequence[int], _made: Made) -> Any:
        """Return a piece."""
        return _narrowed(self.real, starts, sizes)


class Filled(NamedTuple):
    """A tensor filled with one number."""

    shape: tuple[int, ...]
    """Extents."""
    strides: tuple[int, ...]
    """Elements to step per dimension."""
    value: Any
    """The number."""
    dtype: Any
    """PyTorch's format."""

    @property
    def mixed(self) -> int:
        """Nothing of it is data."""
        return 0

    @property
    def bytes(self) -> int:
        """Size of the whole."""
        return int(_elements(self.shape) * self.dtype.itemsize)

    def block(self, _starts: Sequence[int], sizes: Sequence[int], _made: Made) -> Any:
        """Return a piece."""
        import torch

        return torch.full(tuple(sizes), self.value, dtype=self.dtype)


class Data(NamedTuple):
    """Values that inputs or weights determine."""

    dtype: Any
    """PyTorch's format."""
    shape: tuple[int, ...] = ()
    """One element stands for all."""
    strides: tuple[int, ...] = ()
    """No dimension to step along."""
    mixed: int = 1
    """All of it is data."""

    @property
    def bytes(self) -> int:
        """Size of the element."""
        return int(self.dtype.itemsize)

    def block(self, _starts: Sequence[int], _sizes: Sequence[int], _made: Made) -> Any:
        """Return the element."""
        return anything(self.dtype)


class Result(NamedTuple):
    """Result of an operator on known tensors."""

    shape: tuple[int, ...]
    """Extents."""
    strides: tuple[int, ...]
    """Elements to step per dimension."""
    bytes: int
    """Size of the whole result."""
    func: Any
    """The overload."""
    args: Any
    """Arguments, tensors as parts."""
    kwargs: Any
    """Arguments by name, tensors as parts."""
    position: int | None
    """Position among several results."""
    dtype: Any
    """PyTorch's format."""
    mixed: int
    """Steps to what data decide; 0 when all of it is known."""

    @staticmethod
    def of(out: Any, func: Any, args: Any, kwargs: Any, index: int | None = None) -> "Result":
        """Return the origin of `out`."""
        size = out.numel() * out.element_size()
        mixed = max((part.origin.mixed for part in parts_in((*args, *kwargs.values()))), default=0)
        mixed += mixed > 0
        return Result(tuple(out.shape), out.stride(), size, func, tuple(args), dict(kwargs), index, out.dtype, mixed)

    def block(self, starts: Sequence[int], sizes: Sequence[int], made: Made) -> Any:
        """Return a piece, computed from pieces of the arguments where the operator allows."""
        packet = self.func._schema.name.split("::")[1]
        if self.piecewise:
            return self._run(lambda part: _aligned(part, starts, sizes, made)).expand(tuple(sizes))
        if packet in _TRIANGLES:
            diagonal = self.args[1] if len(self.args) > 1 else self.kwargs.get("diagonal", 0)
            piece = self.args[0].block(starts, sizes, made)
            cut = piece.tril if packet.startswith("tril") else piece.triu
            return cut(diagonal + starts[-2] - starts[-1])
        return _narrowed(_whole(self, made), starts, sizes)

    @property
    def piecewise(self) -> bool:
        """Whether an element depends on the elements at its position only."""
        named = self.func._schema.name.split("::")[1] in _PIECEWISE
        return named or "pointwise" in {tag.name for tag in self.func.tags}

    def whole(self, made: Made) -> Any:
        """Return the whole result."""
        return self._run(lambda part: part.all(made))

    def _run(self, piece: Any) -> Any:
        def real(value: Any) -> Any:
            if isinstance(value, Part):
                return piece(value)
            return [real(item) for item in value] if isinstance(value, list) else value

        args = [real(value) for value in self.args]
        named = {name: real(value) for name, value in self.kwargs.items()}
        if has_span((*args, *named.values())):
            return span_of(self.func, args, named, self.dtype)
        if self.func._schema.is_mutable:
            args[0] = args[0].clone()
        results = self.func(*args, **named)
        return results if self.position is None else results[self.position]


class Patched(NamedTuple):
    """A storage with one overwritten view."""

    before: Part
    """The view as it was, on the storage as it was."""
    after: Result
    """The view as it is."""
    shape: tuple[int, ...]
    """Extents of the storage's content."""
    strides: tuple[int, ...]
    """Elements to step per dimension."""
    bytes: int
    """Size of the storage."""
    mixed: int
    """Steps to what data decide; 0 when all of it is known."""

    @staticmethod
    def of(before: Part, after: Result) -> "Patched":
        """Return the storage after the write, chained to earlier writes, of which there can be thousands."""
        origin = before.origin
        return Patched(
            before, after, tuple(origin.shape), tuple(origin.strides), int(origin.bytes),
            max(after.mixed, int(origin.mixed)),
        )  # fmt: skip

    def block(self, starts: Sequence[int], sizes: Sequence[int], made: Made) -> Any:
        """Return a piece of the whole."""
        return _narrowed(_whole(self, made), starts, sizes)

    def whole(self, made: Made) -> Any:
        """Return the storage's content with all overwritten views applied."""
        chain = [self]
        while isinstance(chain[-1].before.origin, Patched):
            chain.append(chain[-1].before.origin)
        content = _whole(chain[-1].before.origin, made).clone()
        for patch in reversed(chain):
            view, after = patch.before, patch.after
            new = after.block([0] * len(view.shape), view.shape, made)
            if isinstance(new, Span) and not isinstance(content, Span):
                content = Span(content, content.clone())
            content.as_strided(view.shape, view.strides, view.offset).copy_(new)
        return content


Origin: TypeAlias = Given | Filled | Data | Result | Patched
"""Origin of the content of a storage."""


def _whole(origin: Origin, made: Made) -> Any:
    """Return the whole content of a storage, laid out as the storage is."""
    import torch

    if isinstance(origin, Given):
        return origin.real
    content = made.get(id(origin))
    if content is None:
        shape = origin.shape
        if origin.bytes > (SPANNED_BYTES if origin.mixed else WHOLE_BYTES):
            raise TooLargeError
        values = (
            origin.block([0] * len(shape), shape, made) if isinstance(origin, (Filled, Data)) else origin.whole(made)
        )
        content = torch.empty_strided(shape, origin.strides, dtype=values.dtype)
        content = Span(content, content.clone()) if isinstance(values, Span) else content
        made[id(origin)] = content.copy_(values)
    return content


def _aligned(part: Part, starts: Sequence[int], sizes: Sequence[int], made: Made) -> Any:
    """Return the piece of an argument that broadcasts to a piece of the result."""
    missing = len(sizes) - len(part.shape)
    rows = list(zip(part.shape, starts[missing:], sizes[missing:], strict=True))
    return part.block([0 if n == 1 else s for n, s, _ in rows], [1 if n == 1 else size for n, _, size in rows], made)


def parts_in(values: Any) -> Iterator[Part]:
    """Return the parts among arguments."""
    for value in values:
        if isinstance(value, Part):
            yield value
        elif isinstance(value, list):
            yield from parts_in(value)


def repeats(part: Part, dimension: int) -> bool:
    """Return whether the view certainly repeats the same values along a dimension."""
    waiting, seen = [(part, dimension)], set[tuple[int, int]]()
    while waiting:
        part, dimension = waiting.pop()
        origin, stride = part.origin, part.strides[dimension]
        if part.shape[dimension] == 1 or stride == 0 or isinstance(origin, Filled):
            continue
        dimensions = [d for d, n in enumerate(origin.shape) if n > 1 and origin.strides[d] == stride]
        if not isinstance(origin, Result) or len(dimensions) != 1:
            return False
        from_end = dimensions[0] - len(origin.shape)
        cut = origin.func._schema.name.split("::")[1] in _TRIANGLES and from_end < -2
        if not cut and not origin.piecewise:
            return False
        if (id(origin), from_end) not in seen:
            seen.add((id(origin), from_end))
            waiting += [
                (argument, len(argument.shape) + from_end)
                for argument in parts_in((*origin.args, *origin.kwargs.values()))
                if len(argument.shape) + from_end >= 0
            ]
    return True


def _narrowed(real: Any, starts: Sequence[int], sizes: Sequence[int]) -> Any:
    for dimension, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        real = real.narrow(dimension, start, size)
    return real


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
