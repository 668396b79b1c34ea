"""Statistics, gradients and matching that the normalisation operators share."""

from typing import Any

import numpy as np

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.definition.operator import AtenSite

EPSILON = 1e-5
"""Added to the variance; PyTorch's default."""


def normalised(x: Any, axis: int | tuple[int, ...]) -> tuple[Any, Any]:
    """Return x with mean 0 and variance 1 over `axis`, and the factor that scaled it."""
    centred = x - x.mean(axis=axis, keepdims=True)
    factor = 1 / np.sqrt((centred**2).mean(axis=axis, keepdims=True) + EPSILON)
    return centred * factor, factor


def of_mean(x: Any, factor: Any, axis: int | tuple[int, ...]) -> Any:
    """Return the size of the mean that `normalised` subtracts, in units of its output."""
    return np.broadcast_to(abs(x.mean(axis=axis, keepdims=True)) * factor, x.shape)


def through(upstream: Any, normal: Any, factor: Any, axis: int | tuple[int, ...]) -> Any:
    """Return the gradient of the input of `normalised` from that of its output."""
    mean = upstream.mean(axis=axis, keepdims=True)
    return factor * (upstream - mean - normal * (upstream * normal).mean(axis=axis, keepdims=True))


def passed_through(upstream: Any, normal: Any, factor: Any, axis: int | tuple[int, ...]) -> Any:
    """Return the sum of the magnitudes of what `through` adds and subtracts: of few elements hardly any is left."""
    size = abs(upstream)
    mean = size.mean(axis=axis, keepdims=True)
    return factor * (size + mean + abs(normal) * (size * abs(normal)).mean(axis=axis, keepdims=True))


def column(arrays: dict[str, Any], name: str, absent: float) -> Any:
    """Return a vector of one value per channel so that it broadcasts over positions, or `absent`."""
    return arrays[name][:, None] if name in arrays else absent


def requested(grads: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients that the attributes of the case request."""
    return {name: value for name, value in grads.items() if arguments.get(name, True)}


def sizes(x: Tensor, hidden: int, weight: Tensor | None) -> dict[str, Any]:
    """Return the arguments that all row-wise normalisations share."""
    return {"rows": x.elements // hidden if hidden else 0, "hidden": hidden, **formats(x, weight)}


def formats(x: Tensor, weight: Tensor | None) -> dict[str, Any]:
    """Return formats and whether there are parameters; without one, their format is that of the input."""
    params = x.dtype if weight is None else weight.dtype
    return {"dtype": x.dtype, "param_dtype": params, "affine": weight is not None}


def wanted(site: AtenSite, weight: object, bias: object) -> dict[str, bool]:
    """Return which gradients a call requests, of the parameters that it has; without an output mask, all."""
    present = {"grad_input": True, "grad_weight": weight is not None, "grad_bias": bias is not None}
    mask = site.args.get("output_mask") or (True,) * len(present)
    return {name: bool(flag) for name, flag in zip(present, mask, strict=False) if present[name]}


def unread(grads: dict[str, bool], upstream: str, *, normal: bool) -> dict[str, int]:
    """Return zero touched bytes for the operands that the requested gradients do not need.

    Args:
        upstream: name of the output's gradient.
        normal: some wanted gradient needs the normalised input.
    """
    needed = {upstream: any(grads.values()), "input": normal, "weight": grads["grad_input"]}
    return {name: 0 for name, reads in needed.items() if not reads}
