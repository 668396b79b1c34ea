"""Masked scatter: consecutive values written where a mask is true, and their gradient."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def masked_scatter(
    elements: int,
    dtype: DType,
    sources: int | None = None,
    mask: int | None = None,
    found: int = 0,
    in_place: bool = False,
) -> Work:
    """Return the least work of y = x with the elements under the mask replaced by the source's, in order.

    Counts: bytes only. How many elements are masked is data; a bound takes none unless the mask is known
    (assumption A9). Elements that are replaced need not be read.

    Args:
        sources: values there are to put, at least as many as are found.
        mask: distinct elements of the mask, one byte each.
        found: elements under the mask.
        in_place: only the replaced elements are written; else a whole new tensor is.

    Source: definition.

    >>> masked_scatter(8, DType(name="bf16", bits_count=16)).read_bytes
    24
    """
    mask_bytes = elements if mask is None else mask
    put = minimum(minimum(found, elements), elements if sources is None else sources)
    return Work(
        read_bytes=dtype.bytes(put if in_place else elements) + mask_bytes,
        write_bytes=dtype.bytes(put if in_place else elements),
    )


def _backward(
    elements: int, dtype: DType, sources: int | None = None, mask: int | None = None, found: int = 0
) -> Work:  # fmt: skip
    """Return the least work of the gradient of the source: the masked elements packed, followed by zeros."""
    wanted = elements if sources is None else sources
    return Work(
        read_bytes=dtype.bytes(minimum(minimum(found, elements), wanted)) + (elements if mask is None else mask),
        write_bytes=dtype.bytes(wanted),
    )


def _valid(drawn: dict[str, Any], elements: int, sources: int, mask: int, **_: Any) -> dict[str, Any]:
    """Return a mask that asks for no more values than there are: before the last such places nothing is put.

    Its first places would nearly always be the first elements, which tells little of where the others go.
    """
    most = sources // (elements // mask) if mask and elements else 0
    return {"mask": drawn["mask"] & (np.cumsum(drawn["mask"][::-1])[::-1] <= most)}


def _reference(arrays: dict[str, Any], elements: int, **_: Any) -> dict[str, Any]:
    y, mask = arrays["x"].copy(), np.resize(arrays["mask"], elements)
    y[mask] = arrays["source"][: mask.sum()]
    return {"y": y}


def _backward_reference(arrays: dict[str, Any], elements: int, **_: Any) -> dict[str, Any]:
    grad, picked = np.zeros_like(arrays["source"]), arrays["grad_y"][np.resize(arrays["mask"], elements)]
    grad[: len(picked)] = picked
    return {"grad_source": grad}


def _torch_call(tensors: dict[str, Any], elements: int, in_place: bool, **_: Any) -> dict[str, Any]:
    x, mask = tensors["x"], tensors["mask"]
    rows = x if len(mask) == elements else x.reshape(-1, len(mask))
    call = rows.masked_scatter_ if in_place else rows.masked_scatter
    return {"y": call(mask, tensors["source"]).reshape(elements)}


def _from_aten(site: AtenSite) -> Match:
    """Match masked_scatter and the gradient of its source; how much is masked is not known."""
    mask = site.args["mask"]
    if "grad_output" in site.args:
        grad, source = site.args["grad_output"], site.outputs[0]
        arguments: dict[str, Value] = {
            "elements": grad.elements, "sources": source.elements, "mask": mask.distinct, "dtype": grad.dtype,
        }  # fmt: skip
        return Match(arguments=arguments, phase="backward", touched_bytes={"grad_output": 0})
    x, source, in_place = site.args["self"], site.args["source"], "scatter_" in site.name
    arguments = {
        "elements": x.elements, "sources": source.elements, "mask": mask.distinct, "dtype": x.dtype,
        "in_place": in_place,
    }  # fmt: skip
    unreplaced_bytes = dtype_of(x.dtype).bytes(max(x.elements - source.elements, 0))
    touched = {"source": 0, "self": 0 if in_place else min(unreplaced_bytes, x.bytes)}
    return Match(arguments=arguments, touched_bytes=touched | ({"write:self": 0} if in_place else {}))


OPERATOR = Operator(
    forward=masked_scatter,
    family="movement",
    backward=_backward,
    data_axes={"found": ("elements", "sources")},
    tolerance=Tolerance(kind="exact"),
    inputs=lambda elements, sources, mask, dtype, **_: {
        "x": Tensor(shape=(elements,), dtype=dtype),
        "mask": Tensor(shape=(mask,), dtype="bool"),
        "source": Tensor(shape=(sources,), dtype=dtype),
    },
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"sources": "elements", "mask": "elements"},
    aten={
        f"aten.{name}.default": _from_aten for name in ("masked_scatter", "masked_scatter_", "masked_scatter_backward")
    },
)
