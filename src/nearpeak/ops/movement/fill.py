"""Constants written to memory: zeros, ones, ranges."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.call_operands import list_overloads, together
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype


def fill(elements: int, dtype: DType) -> Work:
    """Return the least work of writing `elements` values that need not be read.

    Source: definition.

    >>> fill(8, DType(name="bf16", bits_count=16)).write_bytes
    16
    """
    return Work(write_bytes=dtype.bytes(elements))


def _reference(arrays: dict[str, Any], elements: int, **_: Any) -> dict[str, Any]:
    del arrays
    return {"y": np.ones(elements)}


def _torch_call(tensors: dict[str, Any], elements: int, dtype: str) -> dict[str, Any]:
    import torch

    del tensors
    return {"y": torch.ones(elements, dtype=torch_dtype(torch, dtype))}


def _from_aten(site: AtenSite) -> Match:
    """Match factories and in-place fills."""
    out = site.outputs[0] if site.outputs else site.args["self"]
    return Match(arguments={"elements": out.elements, "dtype": out.dtype}, touched_bytes={"self": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match ConstantOfShape and Range."""
    return Match(arguments={"elements": site.outputs[0].elements, "dtype": site.outputs[0].dtype})


_NAMES = (
    "zeros", "ones", "full", "arange", "eye", "linspace", "logspace", "scalar_tensor", "tril_indices", "triu_indices",
    "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zero_", "zero", "fill", "fill_",
    "_efficientzerotensor",
)  # fmt: skip
_OVERLOADS = ("default", "start", "start_step", "m", "Scalar", "Tensor", "out", "start_out",
    "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor",
)  # fmt: skip

OPERATOR = Operator(
    forward=fill,
    family="movement",
    tolerance=Tolerance(kind="exact"),
    inputs=lambda **_: {},
    reference=_reference,
    torch_call=_torch_call,
    aten={
        **{f"aten.{name}.{overload}": _from_aten for name in _NAMES for overload in _OVERLOADS},
        **{name: together(_from_aten) for name in list_overloads("zero")},
    },
    onnx={"ConstantOfShape": _from_onnx, "Range": _from_onnx, "EyeLike": _from_onnx},
)
