"""The numeric constants that a reference uses, such as an epsilon, which implementations must share."""

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from nearpeak.ops.shared.definition.operator import Operator


def constants_of(operator: Operator) -> dict[str, float | tuple[float, ...]]:
    """Return the named constants of an operator's reference, and of the functions that it calls in this package.

    >>> from nearpeak.ops import OPS
    >>> constants_of(OPS["rms_norm"]), constants_of(OPS["gemm"])
    ({'EPSILON': 1e-06}, {})
    """
    return dict(sorted(_constants(operator.reference, set())))


def _constants(function: Any, seen: set[Any]) -> Iterator[tuple[str, float | tuple[float, ...]]]:
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    for name in _names(function.__code__):
        value: Any = function.__globals__.get(name)
        parts = value if isinstance(value, tuple) else (value,)
        if name.isupper() and all(isinstance(part, int | float) for part in parts):
            yield name.removeprefix("_"), value
        elif getattr(value, "__module__", "").startswith("nearpeak.ops"):
            yield from _constants(value, seen)


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, functions within it included."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))
