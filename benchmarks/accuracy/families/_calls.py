"""Calls of PyTorch that modules consist of, as kernels of a block."""

from collections.abc import Mapping, Sequence
from typing import Any

Kernels = Sequence[tuple[int, str, Mapping[str, str], Mapping[str, Any], Mapping[str, str | bool]]]
"""How often each kernel runs, its operator, formats, axes and attributes."""


def function(name: str, elements: Any, b: Any = 0, count: int = 1, dtype: str = "bf16") -> Any:
    """Return an element-wise call; of operands that are broadcast, `b` elements are read."""
    axes = {"elements": elements, "a": elements, "b": b + 0 * elements}
    return count, "elementwise", {"dtype": dtype}, axes, {"function": name}


def cast(dtype: str, out_dtype: str, elements: Any) -> Any:
    """Return a change of format."""
    return 1, "cast", {"dtype": dtype, "out_dtype": out_dtype}, {"elements": elements, "read": elements}, {}


def reduced(name: str, rows: Any, columns: Any) -> Any:
    """Return a reduction of rows in fp32."""
    axes = {"outputs": rows, "reduced": columns + 0 * rows, "read": 0 * rows}
    return 1, "reduce", {"dtype": "fp32", "out_dtype": "fp32"}, axes, {"function": name}
