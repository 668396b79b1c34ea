"""One step of Adafactor, whose second moments are one number per row and per column."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

RATE, DECAY, STEP, LEAST = 0.01, -0.8, 10, 1e-3
"""Learning rate, exponent of the moments' decay, number of the step and least scale of reference and PyTorch call."""


@free_when_empty
def adafactor(
    rows: int,
    columns: int,
    dtype: DType,
    grad_dtype: DType | None = None,
    state_dtype: DType | None = None,
    factored: bool = True,
) -> Work:
    """Return the least work of one step on a matrix p[rows,columns], or with factored=false on its elements alone.

    Counts per element: squares of g and their sums by row and by column 3, the product with both roots 2, sums of
    squares of update and parameter 4, scaled and subtracted 2; 4 FLOP and a root per row and column. Not factored:
    square 1, moving average 3, product 1, the same 4 and 2; a root per element. Clamping and the step's own few
    numbers are not counted.

    Args:
        state_dtype: format of the second moments.
        factored: matrices keep rows + columns second moments; vectors keep one per element.

    Source: Shazeer and Stern 2018, arXiv:1804.04235, algorithm 4, as PyTorch states it, without momentum.

    >>> from nearpeak.core.work.dtype import DTYPES
    >>> work = adafactor(4, 8, DTYPES["fp32"])
    >>> work.read_bytes, work.write_bytes, work.special_count
    (304, 176, 12)
    """
    elements = rows * columns
    sums = rows + columns
    states = sums if factored else elements
    state = (state_dtype or dtype).bytes(states)
    return Work(
        flop={unit(dtype): 11 * elements + (4 * sums if factored else 0)},
        special_count=states,
        read_bytes=dtype.bytes(elements) + (grad_dtype or dtype).bytes(elements) + state,
        write_bytes=dtype.bytes(elements) + state,
    )


def _shapes(rows: int, columns: int, factored: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the states, as PyTorch keeps them."""
    return {"row": (rows, 1), "column": (1, columns)} if factored else {"variance": (rows * columns,)}


def _inputs(
    rows: int, columns: int, dtype: str, grad_dtype: str, state_dtype: str, factored: bool
) -> dict[str, Tensor]:
    shape = (rows, columns) if factored else (rows * columns,)
    tensors = {"parameter": Tensor(shape=shape, dtype=dtype), "grad": Tensor(shape=shape, dtype=grad_dtype)}
    states = _shapes(rows, columns, factored)
    return tensors | {name: Tensor(shape=part, dtype=state_dtype) for name, part in states.items()}


def _reference(arrays: dict[str, Any], rows: int, columns: int, dtype: str, factored: bool, **_: Any) -> dict[str, Any]:
    p, g, rest = arrays["parameter"], arrays["grad"], STEP**DECAY
    least = 2.0**-52 if dtype == "fp64" else 2.0**-23
    if factored:
        row = arrays["row"] + rest * ((g * g).mean(1, keepdims=True) - arrays["row"])
        column = arrays["column"] + rest * ((g * g).mean(0, keepdims=True) - arrays["column"])
        states = {"row": row, "column": column}
        variance = row * column / max(row.mean(), least)
    else:
        variance = arrays["variance"] + rest * (g * g - arrays["variance"])
        states = {"variance": variance}
    update = g / np.sqrt(np.maximum(variance, least**2))
    rate = max(LEAST, np.sqrt((p * p).mean())) * min(RATE, STEP**-0.5)
    return {"parameter": p - rate / max(1.0, np.sqrt((update * update).mean())) * update, **states}


def _torch_call(tensors: dict[str, Any], rows: int, columns: int, factored: bool, **_: Any) -> dict[str, Any]:
    import torch

    p = tensors["parameter"].requires_grad_()
    p.grad = tensors["grad"]
    made = torch.optim.Adafactor([p], lr=RATE, beta2_decay=DECAY, foreach=False)
    names = {"row": "row_var", "column": "col_var", "variance": "variance"}
    states = {name: tensors[name] for name in _shapes(rows, columns, factored)}
    made.state[p] = {"step": torch.tensor(float(STEP - 1)), **{names[name]: state for name, state in states.items()}}
    made.step()
    return {"parameter": p.detach(), **states}


OPERATOR = Operator(
    forward=adafactor,
    family="optimizer",
    tolerance=Tolerance(
        kind="normalisation",
        special="unspecified",
        reduction="rows columns",
        positive=("row", "column", "variance"),
        states=("row", "column", "variance"),
        rounds=("first_step",),
        steps_count=2,
    ),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
)
