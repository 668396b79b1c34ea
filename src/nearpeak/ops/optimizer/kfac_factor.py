"""Kronecker factors of K-FAC: moving averages of a^T a over the tokens of a layer."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import contraction, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.reference.decompositions import symmetric

KEPT = 0.95
"""Weight of the old factor in reference and PyTorch call."""


@free_when_empty
def kfac_factor(tokens: int, dim: int, dtype: DType, factor_dtype: DType = DTYPES["fp32"], bias: bool = False) -> Work:
    """Return the least work of A = kept * A + (1 - kept) / tokens * a^T a, for activations or gradients a[tokens,dim].

    Counts: tokens * dim * (dim + 1) FLOP, as A is symmetric; 3 per distinct element for the moving average. The old
    factor's triangle is read, the new one is written whole.

    Args:
        bias: the layer's bias is a column of ones next to a, whose products are sums of columns.

    Source: Martens and Grosse 2015, arXiv:1503.05671, sections 3 and 5.

    >>> work = kfac_factor(16, 4, DTYPES["bf16"])
    >>> work.flop, work.read_bytes, work.write_bytes
    ({'matrix.bf16': 320, 'vector.fp32': 30}, 168, 64)
    """
    wide = dim + bias
    triangle = wide * (wide + 1) // 2
    sums = 3 * triangle + (dim * maximum(tokens - 1, 0) if bias else 0)
    flop = contraction(dtype, tokens * (dim * (dim + 1) // 2))
    return Work(
        flop=flop | {unit(factor_dtype): flop.get(unit(factor_dtype), 0) + sums},
        read_bytes=dtype.bytes(tokens * dim) + factor_dtype.bytes(triangle),
        write_bytes=factor_dtype.bytes(wide * wide),
    )


def _reference(arrays: dict[str, Any], tokens: int, bias: bool, **_: Any) -> dict[str, Any]:
    a = np.hstack([arrays["a"], np.ones((tokens, 1))]) if bias else arrays["a"]
    return {"factor": KEPT * arrays["factor"] + (1 - KEPT) / tokens * (a.T @ a)}


def _torch_call(tensors: dict[str, Any], tokens: int, bias: bool, **_: Any) -> dict[str, Any]:
    import torch

    a, factor = tensors["a"], tensors["factor"]
    a = torch.nn.functional.pad(a, (0, 1), value=1.0) if bias else a
    return {"factor": torch.addmm(factor, a.T.to(factor), a.to(factor), beta=KEPT, alpha=(1 - KEPT) / tokens)}


OPERATOR = Operator(
    forward=kfac_factor,
    family="optimizer",
    # Of the factor, implementations may read either triangle.
    tolerance=Tolerance(kind="contraction", reduction="tokens", special="a"),
    inputs=lambda tokens, dim, dtype, factor_dtype, bias: {
        "a": Tensor(shape=(tokens, dim), dtype=dtype),
        "factor": Tensor(shape=(dim + bias, dim + bias), dtype=factor_dtype),
    },
    valid=lambda drawn, **_: {"factor": symmetric(drawn["factor"])},
    reference=_reference,
    torch_call=_torch_call,
    degree_count=3,
)
