"""Cases computed in emulated formats: what a format or an accumulator does to a result before hardware has it."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops._torch_names import torch_dtype
from nearpeak.sim.accumulator import FP32, Accumulator, multiply
from nearpeak.ops._formats import FORMATS, FloatFormat

Call = Callable[..., Mapping[str, Any]]


def emulated(
    case: Case, accumulator: Accumulator = FP32, formats: Mapping[str, FloatFormat] = FORMATS, *,
    rounding: str = "nearest_even", seed: int = 0,
) -> Call:  # fmt: skip
    """Return an implementation of a case, on arrays or tensors, to be validated like any other.

    Products of matrices are summed with the accumulator; everything else follows the float64 reference. Every result is
    rounded to the format in which the case stores it.

    Args:
        accumulator: how sums of products are kept.
        formats: number formats by name; one of your own goes beside those that are known.
        rounding: how results are rounded.
        seed: of stochastic rounding.

    Raises:
        NotModelledError: the case stores its result in a format that is not known.

    >>> from nearpeak.ops import case
    >>> product = case("gemm", m=1, n=1, k=1000, dtype="bf16")
    >>> ones = {"a": np.ones((1, 1, 1000)), "b": np.ones((1, 1000, 1))}
    >>> emulated(product, Accumulator(significant_bits_count=8))(ones, **dict(product.axes))["y"].item()
    256.0
    """
    stored = dict(case.dtypes)
    out = formats.get(stored.get("out_dtype") or stored["dtype"])
    if out is None and case.op == "gemm":
        raise NotModelledError(f"emulate: no format {stored.get('out_dtype') or stored['dtype']} for {case.op}")

    def call(inputs: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        wide = {name: _wide(array) for name, array in inputs.items()}
        if case.op == "gemm":
            results = {"y": _products(wide["a"], wide["b"], accumulator, seed)}
        else:
            results = dict(OPS[case.op].reference(wide, **arguments))
        rounded = {name: _rounded(array, out, rounding, seed) for name, array in results.items()}
        return {name: _like(array, inputs, out) for name, array in rounded.items()}

    return call


def _products(a: Any, b: Any, accumulator: Accumulator, seed: int) -> Any:
    """Return the products of a batch of matrices."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim == 2:
        return multiply(left, right, accumulator, seed=seed)
    if left.ndim != 3 or right.ndim != 3:
        raise SpecError(f"emulate: factors of shapes {left.shape}, {right.shape}; [batch,m,k], [batch,k,n] are right")
    return np.stack([multiply(x, y, accumulator, seed=seed) for x, y in zip(left, right, strict=True)])


def _wide(array: Any) -> Any:
    """Return an array, or a tensor of PyTorch, as float64; whole numbers as they are."""
    if hasattr(array, "detach"):
        array = array.detach()
        array = (array.double() if array.is_floating_point() else array).numpy()
    return array.astype(np.float64) if getattr(array, "dtype", np.dtype(object)).kind == "f" else array


def _rounded(array: Any, out: FloatFormat | None, rounding: str, seed: int) -> Any:
    """Return a result rounded to its format; whole numbers stay."""
    values = np.asarray(array)
    if out is None or values.dtype.kind != "f":
        return values
    return out.rounded(values, rounding, seed=seed)


def _like(array: Any, inputs: Mapping[str, Any], out: FloatFormat | None) -> Any:
    """Return a result as a tensor where inputs are tensors; else as an array."""
    tensor = next((one for one in inputs.values() if hasattr(one, "new_tensor")), None)
    if tensor is None:
        return array
    if array.dtype.kind != "f":
        return tensor.new_tensor(array)
    if out is None or out.name not in DTYPES:
        return tensor.new_tensor(array)
    return tensor.new_tensor(array, dtype=torch_dtype(sys.modules["torch"], out.name))  # whose tensors these are
