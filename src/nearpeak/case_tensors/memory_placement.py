"""Tensors with the strides, gaps and alignment that a case states."""

from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.work.case import Case
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import DENSE, OPS, span_of, strides_of

GAP = 0xA5
"""Value of the bytes between elements: a kernel that takes a tensor for dense reads them and gives wrong results."""


def placed(torch: Any, case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tensors` with copies that have the strides and offsets that `case` states.

    It states them by `NAME.layout` and `NAME.offset`, or by an attribute of the operator: `layout=nt` of a product.

    >>> import torch
    >>> from nearpeak.ops import case
    >>> product = case("gemm", m=2, n=3, k=4, dtype="fp32", **{"a.layout": "transposed", "b.offset": 4})
    >>> lying = placed(torch, product, {"a": torch.rand(1, 2, 4), "b": torch.rand(1, 4, 3)})
    >>> lying["a"].stride(), lying["b"].storage_offset(), lying["b"].data_ptr() % 16
    ((0, 1, 2), 1, 4)
    >>> placed(torch, case("gemm", m=2, n=3, k=4, dtype="fp32", layout="nt"), {"b": torch.rand(1, 4, 3)})["b"].stride()
    (0, 1, 4)
    """
    how, described = dict(case.memory), OPS[case.op].inputs(**forward_arguments(case))
    results = dict(tensors)
    for name, tensor in tensors.items():
        shape, offset = tuple(tensor.shape), int(how.get(f"{name}.offset", 0))
        strides = _strides(shape, how.get(f"{name}.layout"), described.get(name))
        if tensor.numel() and (offset or strides != strides_of(shape, DENSE)):
            results[name] = _copied(torch, tensor, strides, offset // tensor.element_size(), tensor.device)
    return results


def _strides(shape: tuple[int, ...], layout: int | str | None, described: Tensor | None) -> tuple[int, ...]:
    """Return the strides of the layout that a case states for an input, else those that its operator describes."""
    if layout is None and described is not None and described.strides is not None and described.shape == shape:
        return tuple(stride if extent > 1 else 0 for stride, extent in zip(described.strides, shape, strict=True))
    return strides_of(shape, str(layout or DENSE))


def copy_of(torch: Any, tensor: Any, device: Any = None) -> Any:
    """Return a copy in new memory with the same strides, gaps and offset as `tensor`.

    Gradients flow through it, as through `clone` and `to`.

    >>> import torch
    >>> sliced = torch.arange(10.0)[1::2]
    >>> copy_of(torch, sliced).stride(), copy_of(torch, sliced).storage_offset(), sliced.clone().stride()
    ((2,), 1, (1,))
    >>> copy_of(torch, torch.ones(()).expand(3, 2)).stride()
    (0, 0)
    """
    where = tensor.device if device is None else device
    shared = [place for place, step in enumerate(tensor.stride()) if not step and tensor.shape[place] > 1]
    if shared:
        first = tensor  # the slices whose memory all others share
        for place in shared:
            first = first.narrow(place, 0, 1)
        return copy_of(torch, first, device).expand(tensor.shape)
    if dense(tensor):
        return tensor.to(where) if tensor.device != torch.device(where) else tensor.clone()
    return _copied(torch, tensor, tuple(tensor.stride()), tensor.storage_offset(), where)


def dense(tensor: Any) -> bool:
    """Return whether `tensor` is dense and starts at the beginning of its memory."""
    return bool(not tensor.numel() or (tensor.is_contiguous() and not tensor.storage_offset()))


def _copied(torch: Any, tensor: Any, strides: tuple[int, ...], start: int, device: Any) -> Any:
    span = span_of(tuple(tensor.shape), strides)
    storage = torch.empty(start + span, dtype=tensor.dtype, device=device)
    storage.view(torch.uint8).fill_(GAP)
    return storage.as_strided(tensor.shape, strides, start).copy_(tensor)
