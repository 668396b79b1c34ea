"""Dropout, with the mask that its backward pass needs."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

_MASK = dtype_of("bool")


def dropout(elements: int, dtype: DType, mask: bool = True) -> Work:
    """Return the least work of y = x * mask / (1 - p), with the mask drawn on the way.

    Counts: one FLOP per element. Reference and PyTorch call use p = 0, so that they can be compared.

    Args:
        mask: the mask is written, one byte per element, for the backward pass.

    Source: Srivastava et al. 2014, Journal of Machine Learning Research 15, pages 1929-1958.

    >>> dropout(8, DType(name="bf16", bits_count=16)).write_bytes
    24
    """
    return Work(
        flop={unit(dtype): elements},
        read_bytes=dtype.bytes(elements),
        write_bytes=dtype.bytes(elements) + (_MASK.bytes(elements) if mask else 0),
    )


def _backward(elements: int, dtype: DType, mask: bool = True) -> Work:
    """Return the least work of the input's gradient; a mask that was not written is drawn again from its seed."""
    return Work(
        flop={unit(dtype): elements},
        read_bytes=dtype.bytes(elements) + (_MASK.bytes(elements) if mask else 0),
        write_bytes=dtype.bytes(elements),
    )


def _reference(arrays: dict[str, Any], mask: bool, **_: Any) -> dict[str, Any]:
    return {"y": arrays["x"]} | ({"mask": np.ones(len(arrays["x"]), np.int64)} if mask else {})


def _torch_call(tensors: dict[str, Any], mask: bool, **_: Any) -> dict[str, Any]:
    import torch

    y, drawn = torch.native_dropout(tensors["x"], 0.0, True)
    return {"y": y} | ({"mask": drawn} if mask else {})


def _from_aten(site: AtenSite) -> Match:
    """Match native_dropout and its gradient."""
    back = "backward" in site.name
    x = site.args["grad_output" if back else "input"]
    return Match(arguments={"elements": x.elements, "dtype": x.dtype}, phase="backward" if back else "forward")


OPERATOR = Operator(
    forward=dropout,
    family="pointwise",
    backward=_backward,
    tolerance=Tolerance(kind="pointwise", ulp_count=1),
    inputs=lambda elements, dtype, **_: {"x": Tensor(shape=(elements,), dtype=dtype)},
    reference=_reference,
    backward_reference=lambda arrays, **_: {"grad_x": arrays["grad_y"]},
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten.native_dropout.default", "aten.native_dropout_backward.default"), _from_aten),
    draws=True,
)
