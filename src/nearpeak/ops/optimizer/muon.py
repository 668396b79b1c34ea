"""One step of Muon: momentum orthogonalised by Newton-Schulz iterations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import contraction, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_positive
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype

Store = Callable[[Any], Any]
RATE, MOMENTUM, DECAY, EPSILON = 1e-3, 0.95, 0.1, 1e-7
"""Settings of reference and PyTorch call, PyTorch's defaults."""
COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic polynomial a X + b A X + c A² X with A = X X^T (Jordan et al. 2024)."""


@free_when_empty
def muon(
    rows: int,
    columns: int,
    dtype: DType,
    grad_dtype: DType | None = None,
    state_dtype: DType | None = None,
    product_dtype: DType = DTYPES["bf16"],
    iterations: int = 5,
    nesterov: bool = True,
) -> Work:
    """Return the least work of one step on a matrix p[rows,columns]; its smaller extent is called s, the other l.

    Counts: per iteration X X^T and the square of the result, symmetric and so half each, and the update of X:
    2 * (s(s+1)/2 * (l + s) + s² * l) FLOP; or X X^T once, 4 * iterations - 3 symmetric products of s x s, and one
    product with X, where that is less: all factors are polynomials of the same matrix. Vector FLOP per element: 3 for
    the momentum, 3 for Nesterov's look-ahead, 2 for the norm, 1 to divide by it, 3 for decay and update. The
    polynomial's sums are not counted.

    Args:
        state_dtype: format of the momentum.
        product_dtype: format in which the iterations multiply.

    Source: Jordan et al. 2024, Muon: an optimizer for hidden layers in neural networks; Liu et al. 2025,
        arXiv:2502.16982, section 2.1.

    >>> work = muon(2, 4, DTYPES["fp32"])
    >>> work.flop, work.read_bytes, work.write_bytes
    ({'matrix.bf16': 260, 'vector.fp32': 95}, 96, 64)
    """
    required_positive("muon", iterations=iterations)
    elements = rows * columns
    small, large = minimum(rows, columns), maximum(rows, columns)
    half = small * (small + 1) // 2
    one_by_one = iterations * (half * (large + small) + small * small * large)
    together = half * (large + small * (4 * iterations - 3)) + small * small * large
    products = minimum(one_by_one, together)
    state = (state_dtype or dtype).bytes(elements)
    per_element = 9 + (3 if nesterov else 0)
    vector = unless_empty(elements, maximum(per_element * elements - 1, 0))
    flop = contraction(product_dtype, products)
    return Work(
        flop=flop | {unit(dtype): flop.get(unit(dtype), 0) + vector},
        special_count=unless_empty(elements, 2 + 0 * elements),
        read_bytes=dtype.bytes(elements) + (grad_dtype or dtype).bytes(elements) + state,
        write_bytes=dtype.bytes(elements) + state,
    )


def _inputs(rows: int, columns: int, dtype: str, grad_dtype: str, state_dtype: str, **_: Any) -> dict[str, Tensor]:
    formats = {"parameter": dtype, "grad": grad_dtype, "momentum": state_dtype}
    return {name: Tensor(shape=(rows, columns), dtype=format_) for name, format_ in formats.items()}


def _orthogonal(update: Any, iterations: int, norm: Any, store: Store) -> Any:
    """Return the update after the iterations, of NumPy arrays or tensors; products and sums go through `store`."""
    a, b, c = COEFFICIENTS
    x = store((update.T if update.shape[0] > update.shape[1] else update) / norm)
    for _ in range(iterations):
        gram = store(x @ x.T)
        x = store(a * x + store(b * gram + c * store(gram @ gram)) @ x)
    return x.T if update.shape[0] > update.shape[1] else x


def _stepped(p: Any, update: Any, rows: int, columns: int) -> Any:
    return p * (1 - RATE * DECAY) - RATE * max(1.0, rows / columns) ** 0.5 * update


def _stored(
    arrays: dict[str, Any], store: Callable[[Any, str], Any], rows: int, columns: int, iterations: int, nesterov: bool,
    product_dtype: str, **_: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the step with products rounded to `product_dtype`."""
    g = arrays["grad"]
    momentum = arrays["momentum"] + (1 - MOMENTUM) * (g - arrays["momentum"])
    update = g + MOMENTUM * (momentum - g) if nesterov else momentum
    norm = max(np.linalg.norm(update), EPSILON)
    update = _orthogonal(update, iterations, norm, lambda x: store(x, product_dtype))
    return {"parameter": _stepped(arrays["parameter"], update, rows, columns), "momentum": momentum}


def _torch_call(
    tensors: dict[str, Any], rows: int, columns: int, iterations: int, nesterov: bool, product_dtype: str, **_: Any
) -> dict[str, Any]:
    import torch

    p, g, momentum = tensors["parameter"], tensors["grad"], tensors["momentum"]
    if product_dtype == "bf16":  # the only format that PyTorch's own step multiplies in
        p.requires_grad_()
        p.grad = g
        made = torch.optim.Muon([p], lr=RATE, weight_decay=DECAY, nesterov=nesterov, ns_steps=iterations)
        made.state[p]["momentum_buffer"] = momentum
        made.step()
        return {"parameter": p.detach(), "momentum": momentum}
    momentum = torch.lerp(momentum, g, 1 - MOMENTUM)
    update = (torch.lerp(g, momentum, MOMENTUM) if nesterov else momentum).to(torch_dtype(torch, product_dtype))
    update = _orthogonal(update, iterations, update.norm().clamp(min=EPSILON), lambda x: x).to(p.dtype)
    return {"parameter": _stepped(p, update, rows, columns), "momentum": momentum}


OPERATOR = Operator(
    forward=muon,
    family="optimizer",
    tolerance=Tolerance(
        kind="normalisation", reduction="rows columns", steps_count=2, states=("momentum",), rounds=("first_step",)
    ),
    inputs=_inputs,
    reference=lambda arrays, **arguments: _stored(arrays, lambda x, _: x, **arguments),
    stored=_stored,
    torch_call=_torch_call,
    degree_count=3,
)
