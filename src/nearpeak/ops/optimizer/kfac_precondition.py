"""The preconditioned K-FAC update: a layer's gradient between the inverses of its two factors."""

from typing import Any

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import contraction
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.reference.decompositions import symmetric


@free_when_empty
def kfac_precondition(
    rows: int, columns: int, dtype: DType, grad_dtype: DType | None = None, out_dtype: DType | None = None
) -> Work:
    """Return the least work of G^-1 dW[rows,columns] A^-1, with G^-1[rows,rows] and A^-1[columns,columns] symmetric.

    Counts: 2 * rows * columns * (rows + columns) FLOP in the inverses' format. Triangles of both inverses are read.

    Args:
        dtype: format of the inverses and of the products.

    Source: Martens and Grosse 2015, arXiv:1503.05671, section 4.

    >>> from nearpeak.core.work.dtype import DTYPES
    >>> work = kfac_precondition(2, 3, DTYPES["fp32"])
    >>> work.flop, work.read_bytes
    ({'matrix.fp32': 60}, 60)
    """
    triangles = rows * (rows + 1) // 2 + columns * (columns + 1) // 2
    return Work(
        flop=contraction(dtype, rows * columns * (rows + columns)),
        read_bytes=dtype.bytes(triangles) + (grad_dtype or dtype).bytes(rows * columns),
        write_bytes=(out_dtype or dtype).bytes(rows * columns),
    )


def _torch_call(tensors: dict[str, Any], out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    from nearpeak.ops.shared.torch_names import torch_dtype

    left, right = tensors["left"], tensors["right"]
    return {"y": torch.linalg.multi_dot([left, tensors["grad"].to(left), right]).to(torch_dtype(torch, out_dtype))}


OPERATOR = Operator(
    forward=kfac_precondition,
    family="optimizer",
    # Of the inverses, implementations may read either triangle.
    tolerance=Tolerance(kind="contraction", reduction="rows columns", steps_count=1, special="grad"),
    inputs=lambda rows, columns, dtype, grad_dtype, **_: {
        "left": Tensor(shape=(rows, rows), dtype=dtype),
        "grad": Tensor(shape=(rows, columns), dtype=grad_dtype),
        "right": Tensor(shape=(columns, columns), dtype=dtype),
    },
    valid=lambda drawn, **_: {name: symmetric(drawn[name]) for name in ("left", "right")},
    reference=lambda arrays, **_: {"y": arrays["left"] @ arrays["grad"] @ arrays["right"]},
    torch_call=_torch_call,
    degree_count=3,
)
