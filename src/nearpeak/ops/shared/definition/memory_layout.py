"""Memory layouts of inputs that are not dense and aligned: strides and byte offsets."""

from collections.abc import Mapping
from math import prod

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import SpecError

Value = int | str | bool
DENSE = "dense"
LAYOUTS = {"transposed": 2, "channels_last": 4, "padded": 2, "stepped": 1}
"""Layouts beside dense, with the least number of dimensions: the last two dimensions exchanged in memory, the second
one innermost, rows one element further apart than they are long, every second element of longer rows. In this order
the first is named where several are the same. None repeats elements: what an expanded tensor computes is less."""
LARGEST_OFFSET_BYTES = 4096
"""A page: from there on alignments repeat."""
STEP = 2


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the elements to step in each dimension; 0 where an extent of 1 has no meaning of it.

    >>> [strides_of((2, 3, 4), layout) for layout in ("dense", "transposed", "padded", "stepped")]
    [(12, 4, 1), (12, 1, 3), (15, 5, 1), (24, 8, 2)]
    >>> strides_of((2, 3, 4, 5), "channels_last")
    (60, 1, 15, 3)
    """
    order = list(range(len(shape)))
    if layout == "transposed":
        order[-2:] = reversed(order[-2:])
    if layout == "channels_last":
        order = [0, *order[2:], 1]
    step = STEP if layout == "stepped" else 1
    strides = [0] * len(shape)
    for place, dimension in enumerate(reversed(order)):
        strides[dimension] = step
        step *= shape[dimension]
        step += int(layout == "padded" and place == 0)
    return tuple(stride if extent > 1 else 0 for stride, extent in zip(strides, shape, strict=True))


def span_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the elements from the first to the last of a view; 0 where it has none.

    >>> span_of((2, 3), (4, 1)), span_of((0, 3), (4, 1))
    (7, 0)
    """
    if not prod(shape):
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def memory_of(
    op: str, inputs: Mapping[str, Tensor], arguments: Mapping[str, Value]
) -> tuple[tuple[str, int | str], ...]:
    """Return `NAME.layout` and `NAME.offset` in their canonical form: checked, sorted, without dense ones.

    Raises:
        SpecError: no such input or word, too few dimensions, or an offset that no element can start at.

    >>> tensors = {"x": Tensor(shape=(4, 6), dtype="bf16"), "row": Tensor(shape=(1, 6), dtype="bf16")}
    >>> memory_of("op", tensors, {"x.offset": 2, "x.layout": "transposed", "row.layout": "transposed"})
    (('x.layout', 'transposed'), ('x.offset', 2))
    """
    memory: dict[str, int | str] = {}
    for key, value in arguments.items():
        name, _, what = key.rpartition(".")
        if name not in inputs or what not in ("layout", "offset"):
            raise SpecError(
                f"{op}: no input {key!r}; how inputs lie is written NAME.layout or NAME.offset, "
                f"NAME one of {', '.join(inputs) or 'none'}"
            )
        canonical = _layout(op, key, value, inputs[name]) if what == "layout" else _offset(op, key, value, inputs[name])
        if canonical:
            memory[key] = canonical
    return tuple(sorted(memory.items()))


def _layout(op: str, key: str, value: Value, tensor: Tensor) -> str:
    """Return the canonical word of a layout; empty for one that is dense, as of single rows."""
    if value == DENSE:
        return ""
    if value not in LAYOUTS:
        raise SpecError(f"{op}: {key}={value!r} is no layout; give {DENSE}, {', '.join(LAYOUTS)}")
    rank = len(tensor.shape)
    if rank < LAYOUTS[str(value)]:
        raise SpecError(f"{op}: {key}={value} needs {LAYOUTS[str(value)]} dimensions; the tensor has {rank}")
    _whole_bytes(op, key, tensor)
    strides = strides_of(tensor.shape, str(value))
    if not tensor.elements or strides == strides_of(tensor.shape, DENSE):
        return ""
    return next(
        name for name, least in LAYOUTS.items() if rank >= least and strides_of(tensor.shape, name) == strides
    )  # fmt: skip


def _offset(op: str, key: str, value: Value, tensor: Tensor) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST_OFFSET_BYTES:
        raise SpecError(f"{op}: {key}={value!r} is not a number of bytes from 0 to below {LARGEST_OFFSET_BYTES}")
    size = _whole_bytes(op, key, tensor)
    if value % size:
        raise SpecError(f"{op}: {key}={value} is not a multiple of the {size} bytes of {tensor.dtype}")
    return value if tensor.elements else 0


def _whole_bytes(op: str, key: str, tensor: Tensor) -> int:
    bits = dtype_of(tensor.dtype).bits_count
    if bits % 8:
        raise SpecError(f"{op}: {key}: elements of {tensor.dtype} take no whole bytes; only dense ones have a place")
    return int(bits // 8)
