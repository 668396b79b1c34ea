"""Damped inverses of K-FAC's factors, by Cholesky factorisation."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.product.linalg import linalg
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

DAMPING = 0.5
"""What reference and PyTorch call add to the diagonal."""


@free_when_empty
def kfac_inverse(batch: int, dim: int, dtype: DType) -> Work:
    """Return the least work of (A + damping * I)^-1 for `batch` symmetric factors of dim x dim.

    Counts: those of a Cholesky factorisation and of the inverse from its triangle (see linalg), about dim³ FLOP
    together; one sum per element of the diagonal. A's triangle is read, the inverse written whole.

    Source: Martens and Grosse 2015, arXiv:1503.05671, section 6; Blackford and Dongarra 1999, LAPACK Working Note 41,
        appendix C.

    >>> from nearpeak.core.work.dtype import DTYPES
    >>> work = kfac_inverse(1, 3, DTYPES["fp32"])
    >>> work.flop, work.read_bytes, work.write_bytes
    ({'matrix.fp32': 28, 'vector.fp32': 3}, 24, 36)
    """
    both = linalg(batch, dim, dtype, function="cholesky") + linalg(batch, dim, dtype, function="cholesky_inverse")
    return Work(
        flop={**both.flop, unit(dtype): both.flop.get(unit(dtype), 0) + batch * dim},
        special_count=both.special_count,
        read_bytes=dtype.bytes(batch * (dim * (dim + 1) // 2)),
        write_bytes=dtype.bytes(batch * dim * dim),
    )


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return positive definite factors made of the drawn matrices."""
    factor = drawn["factor"]
    return {"factor": factor @ factor.swapaxes(-1, -2) / factor.shape[-1]}


def _torch_call(tensors: dict[str, Any], dim: int, **_: Any) -> dict[str, Any]:
    import torch

    factor = tensors["factor"]
    damped = factor + DAMPING * torch.eye(dim, dtype=factor.dtype, device=factor.device)
    return {"inverse": torch.cholesky_inverse(torch.linalg.cholesky(damped))}


OPERATOR = Operator(
    forward=kfac_inverse,
    family="optimizer",
    tolerance=Tolerance(kind="decomposition", reduction="dim dim", special="unspecified"),
    inputs=lambda batch, dim, dtype: {"factor": Tensor(shape=(batch, dim, dim), dtype=dtype)},
    valid=_valid,
    reference=lambda arrays, dim, **_: {"inverse": np.linalg.inv(arrays["factor"] + DAMPING * np.eye(dim))},
    torch_call=_torch_call,
    degree_count=3,
)
