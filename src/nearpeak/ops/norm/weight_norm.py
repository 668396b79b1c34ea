"""Weight normalisation: weights as a direction times a length."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def weight_norm(rows: int, columns: int, dtype: DType) -> Work:
    """Return the least work of w[row] = g[row] * v[row] / |v[row]|, with the norms for the gradient.

    Counts: 2 * columns - 1 FLOP and a root per norm, a division of g by it, and one FLOP per element.

    Source: Salimans and Kingma 2016, arXiv:1602.07868, eq. 2 and 3.

    >>> weight_norm(2, 8, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 46}
    """
    return Work(
        flop={unit(dtype): rows * (maximum(2 * columns - 1, 0) + columns)},
        special_count=2 * rows,
        read_bytes=dtype.bytes(rows * columns + rows),
        write_bytes=dtype.bytes(rows * columns + rows),
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(columns)),
    )


def _backward(rows: int, columns: int, dtype: DType) -> Work:
    """Return the least work of the gradients of direction and length.

    Counts: the product of v with w's gradient (2 * columns - 1 FLOP per row), a - b * v per element (3), and per row a
    division by the norm, whose square and products are 3 FLOP.

    Source: Salimans and Kingma 2016, arXiv:1602.07868, eq. 3.
    """
    return Work(
        flop={unit(dtype): rows * (maximum(2 * columns - 1, 0) + 3 * columns + 3)},
        special_count=rows,
        read_bytes=dtype.bytes(2 * rows * columns + 2 * rows),
        write_bytes=dtype.bytes(rows * columns + rows),
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(columns)),
    )


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    norm = np.linalg.norm(arrays["v"], axis=1, keepdims=True)
    return {"w": arrays["v"] * (arrays["g"] / norm), "norm": norm}


def _backward_reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    v, g, upstream = arrays["v"], arrays["g"], arrays["grad_w"]
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    grad_g = (upstream * v).sum(axis=1, keepdims=True) / norm
    return {"grad_v": g / norm * (upstream - v * grad_g / norm), "grad_g": grad_g}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    if not len(tensors["v"]):
        raise NotImplementedError("PyTorch's kernel divides by the number of rows")
    w, norm = torch._weight_norm_interface(tensors["v"], tensors["g"], 0)
    return {"w": w, "norm": norm.detach()}


def _from_aten(site: AtenSite) -> Match:
    """Match the fused reparametrisation and its gradient."""
    v, g = (site.args.get(name, site.args.get(f"saved_{name}")) for name in ("v", "g"))
    assert v is not None
    assert g is not None
    arguments: dict[str, Value] = {
        "rows": g.elements, "columns": v.elements // max(1, g.elements), "dtype": v.dtype,
    }  # fmt: skip
    return Match(arguments=arguments, phase="backward" if "grad_w" in site.args else "forward")


OPERATOR = Operator(
    forward=weight_norm,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(kind="normalisation", reduction="columns", gates="always"),
    inputs=lambda rows, columns, dtype: {
        "v": Tensor(shape=(rows, columns), dtype=dtype),
        "g": Tensor(shape=(rows, 1), dtype=dtype),
    },
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        "aten._weight_norm_interface.default": _from_aten,
        "aten._weight_norm_interface_backward.default": _from_aten,
    },
)
