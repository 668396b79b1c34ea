"""Memory layouts of inputs, derived from the strides in an operator log."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from nearpeak.core.work.case import Case
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS
from nearpeak.ops.shared import sliding_windows
from nearpeak.ops.shared.definition.memory_layout import DENSE, LAYOUTS, strides_of
from nearpeak.ops.shared.torch_names import torch_dtype


class _Strided(NamedTuple):
    """Shape, strides and format of a tensor."""

    extents: tuple[int, ...]
    """Without those of 1."""
    strides: tuple[int, ...]
    """Elements to step in each dimension."""
    dtype: Any
    """PyTorch's format."""


def lying(case: Case, tensors: Sequence[Any]) -> tuple[Case, bool]:
    """Return `case` with the layouts in which the tensors of its row lie, and whether it keeps all of them.

    A choice `layout` of an operator has a word for dense inputs in another order alone, not for gaps. What lies alike
    everywhere is dense to an operator that takes elements one by one, in whatever order. Elements that an expanded
    tensor repeats are read once, as the case's extents say.
    """
    strided = [tensor for tensor in tensors if not tensor.is_contiguous()]
    if not strided:
        return case, True
    layout = str(dict(case.attributes).get("layout", ""))
    if layout or case.phase != "forward":
        return case, bool(layout) and _is_said(case, layout, strided)
    operator = OPS[case.op]
    arguments = operator.forward_arguments(case)
    inputs = operator.inputs(**arguments)
    if all(len(tensor.shape) == 1 for tensor in inputs.values()) and _alike(tensors):
        return case, True
    layouts = _layouts(inputs, [_distinct(tensor) for tensor in tensors])
    if layouts is None:
        return case, False
    return operator.case("forward", **arguments, **{f"{name}.layout": layout for name, layout in layouts.items()}), True


def _is_said(case: Case, layout: str, strided: Sequence[Any]) -> bool:
    """Say whether the choice `layout` of a case says how all of these tensors lie."""
    if layout in sliding_windows.LAYOUTS:
        return all(_is_dense(tensor, sliding_windows.strides_of(tuple(tensor.shape), layout)) for tensor in strided)
    inputs = OPS[case.op].inputs(**OPS[case.op].forward_arguments(case)).values()
    return all(any(_is_stored(_distinct(tensor), known) for known in inputs) for tensor in strided)


def _is_dense(tensor: Any, strides: Sequence[int] | None) -> bool:
    """Say whether a tensor that is not contiguous has these strides, where it has more than one element to step to."""
    rows = () if strides is None else zip(tensor.shape, tensor.stride(), strides, strict=True)
    return strides is not None and all(extent == 1 or actual == expected for extent, actual, expected in rows)


def _is_stored(tensor: _Strided, described: Tensor) -> bool:
    """Say whether a tensor lies as the case says that this input does; its order among the inputs may be another."""
    strides = described.strides or strides_of(described.shape, DENSE)
    distinct = tuple(stride if extent > 1 else 0 for stride, extent in zip(strides, described.shape, strict=True))
    return _holds(described, tensor) and merged(tensor.extents, tensor.strides, described.shape) == distinct


def _alike(tensors: Sequence[Any]) -> bool:
    """Say whether all tensors have one shape and one order of dimensions, without gaps."""
    (shape, strides), *others = {(tuple(tensor.shape), tensor.stride()) for tensor in tensors}
    dense = sorted(stride for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    extents = [extent for _, extent in sorted(zip(strides, shape, strict=True)) if extent > 1]
    return not others and dense == [prod(extents[:place]) for place in range(len(extents))]


def _distinct(tensor: Any) -> _Strided:
    """Return how a tensor lies, without the dimensions along which it repeats itself."""
    sides = [pair for pair in zip(tensor.shape, tensor.stride(), strict=True) if pair[0] != 1]
    stepped = [pair for pair in sides if pair[1] != 0] if tensor.numel() else sides
    return _Strided(tuple(extent for extent, _ in stepped), tuple(stride for _, stride in stepped), tensor.dtype)


def _layouts(inputs: dict[str, Tensor], tensors: Iterable[_Strided]) -> dict[str, str] | None:
    """Return the layout of each input that is not dense; none where a tensor is no input, or lies in a way of its own.

    Tensors and inputs come in the same order; those of other extents or formats are passed over.
    """
    left, layouts = list(inputs.items()), {}
    for tensor in tensors:
        place = next((n for n, (_, described_input) in enumerate(left) if _holds(described_input, tensor)), None)
        if place is None:
            if tensor.strides == strides_of(tensor.extents, DENSE):
                continue
            return None
        name, described = left[place]
        del left[: place + 1]
        strides = merged(tensor.extents, tensor.strides, described.shape)
        words = (DENSE, *(word for word, least in LAYOUTS.items() if len(described.shape) >= least))
        layout = next((word for word in words if strides_of(described.shape, word) == strides), None)
        if layout is None:
            return None
        if layout != DENSE:
            layouts[name] = layout
    return layouts


def _holds(described: Tensor, tensor: _Strided) -> bool:
    import torch

    return described.elements == prod(tensor.extents) and torch_dtype(torch, described.dtype) is tensor.dtype


def merged(extents: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of `shape`, each side one or several neighbouring extents; none where they are no one side.

    >>> merged((4, 32, 128), (4096, 128, 1), (128, 128)), merged((32, 128), (1, 32), (4096,))
    ((128, 1), None)
    >>> merged((32, 128), (1, 32), (1, 32, 128))
    (0, 1, 32)
    """
    left, merged_strides = list(zip(extents, strides, strict=True)), []
    for side in shape:
        length, stride = 1, 0
        while length < side:
            if not left or (length > 1 and stride != left[0][0] * left[0][1]):
                return None
            extent, stride = left.pop(0)
            length *= extent
        if length != side:
            return None
        merged_strides.append(stride)
    return None if left else tuple(merged_strides)
