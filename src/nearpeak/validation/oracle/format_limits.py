"""Number formats: unit roundoff, smallest steps, poison values, conversion and rounding."""

from typing import Any

UNIT_ROUNDOFF = {
    "fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8_e4m3": 2.0**-4, "fp8_e5m2": 2.0**-3,
    "fp8_e8m0": 2.0**-1, "complex64": 2.0**-24, "complex128": 2.0**-53,
}  # fmt: skip
"""Largest relative error of rounding to nearest, by format (IEEE 754-2019; OCP 8-bit floating point 1.0, 2023)."""
HALF_STEP = {
    "fp64": 2.0**-1075, "fp32": 2.0**-150, "fp16": 2.0**-25, "bf16": 2.0**-134, "fp8_e4m3": 2.0**-10,
    "fp8_e5m2": 2.0**-17, "fp8_e8m0": 2.0**-128, "complex64": 2.0**-150, "complex128": 2.0**-1075,
}  # fmt: skip
"""Half the smallest positive number: the error of rounding where results are subnormal."""
SMALLEST_NORMAL = {2.0**-24: 2.0**-126, 2.0**-53: 2.0**-1022}
"""By roundoff of the arithmetic: the magnitude below which intermediates may be flushed to zero."""
_LARGE = {"fp16": 2.0**15, "fp8_e5m2": 2.0**15, "fp8_e4m3": 2.0**7}


def arithmetic_roundoff(dtype: str) -> float:
    """Return the roundoff of the arithmetic expected for results in `dtype`: fp32 at least.

    >>> arithmetic_roundoff("bf16") == 2.0**-24
    True
    """
    return min(UNIT_ROUNDOFF.get(dtype, 2.0**-24), 2.0**-24)


def format_name(dtype: Any) -> str:
    """Return the canonical name of PyTorch's `dtype`."""
    from nearpeak.core.work.dtype import dtype_of

    return dtype_of(str(dtype).removeprefix("torch.")).name


def poison_value(name: str, kind: str) -> float | int:
    """Return the poison of memory that an implementation must overwrite: `nan`, or a large `finite` value.

    NaN alone is hidden by max(…, 0), a finite value alone by a near overwrite; 2^100 is exact in fp32 and bf16.
    """
    if name not in UNIT_ROUNDOFF:
        return 85 if name != "bool" else int(kind == "nan")
    return float("nan") if kind == "nan" else _LARGE.get(name, 2.0**100)


def widened(tensor: Any) -> Any:
    """Return the values of a tensor as NumPy array: floats in float64, everything else as it is."""
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def wrapped(values: Any, name: str) -> Any:
    """Return integers wrapped to the format `name`, without their upper bits.

    >>> import numpy as np
    >>> wrapped(np.array([127, 128, -300]), "int8").tolist()
    [127, -128, -44]
    """
    import numpy as np

    return values.astype(name).astype(np.int64) if name in ("int8", "uint8", "int16", "int32") else values


def rounded(values: Any, dtype: Any) -> Any:
    """Return float64 `values` as they are after rounding to PyTorch's `dtype`, ties to even."""
    import numpy as np
    import torch

    return np.asarray(widened(torch.as_tensor(np.array(values)).to(dtype)))
