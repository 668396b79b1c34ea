"""Masked selection: the elements where a mask is true, packed into a vector."""

from typing import Any

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def masked_select(elements: int, dtype: DType, mask: int | None = None, found: int = 0) -> Work:
    """Return the least work of y = the elements of x under the mask.

    Counts: bytes only. How many elements are masked is data, between 0 and `elements`; a bound takes none unless the
    mask is known (assumption A9).

    Args:
        mask: distinct elements of the mask, one byte each.
        found: elements under the mask.

    Source: definition.

    >>> masked_select(8, DType(name="bf16", bits_count=16), found=2).read_bytes
    12
    """
    picked = minimum(found, elements)
    return Work(read_bytes=dtype.bytes(picked) + (elements if mask is None else mask), write_bytes=dtype.bytes(picked))


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.masked_select(tensors["x"], tensors["mask"])}


def _from_aten(site: AtenSite) -> Match:
    """Match masked_select; how much is masked is not known."""
    x, mask = site.args["self"], site.args["mask"]
    arguments: dict[str, Value] = {"elements": x.elements, "mask": mask.distinct, "dtype": x.dtype}
    return Match(arguments=arguments, touched_bytes={"self": 0, "write:": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match Compress, whose mask may name slices of an axis; how much is masked is not known."""
    x, mask = site.tensor(0), site.tensor(1)
    arguments: dict[str, Value] = {"elements": x.elements, "mask": mask.distinct, "dtype": x.dtype}
    return Match(arguments=arguments, touched_bytes={"0": 0, "write:": 0})


OPERATOR = Operator(
    forward=masked_select,
    family="movement",
    data_axes={"found": ("elements",)},
    tolerance=Tolerance(kind="exact"),
    inputs=lambda elements, mask, dtype, **_: {
        "x": Tensor(shape=(elements,), dtype=dtype),
        "mask": Tensor(shape=(mask,), dtype="bool"),
    },
    reference=lambda arrays, **_: {"y": arrays["x"][arrays["mask"]]},
    torch_call=_torch_call,
    same={"mask": "elements"},
    aten={"aten.masked_select.default": _from_aten},
    onnx={"Compress": _from_onnx},
)
