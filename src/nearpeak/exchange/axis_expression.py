"""Evaluation of arithmetic expressions and constraints over axis names, parsed without executing Python."""

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.errors import SpecError

_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_COMPARE_SETTINGS = _COMPARE | {
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_LARGEST = 2**63


def evaluate(text: str, axes: Mapping[str, int]) -> int | bool:
    """Return the value of an expression over `axes`.

    Raises:
        SpecError: not an expression of axis names, whole numbers, + - * / // % ** and comparisons; an axis is not
            known; the value is not a whole number or has more than 63 bits.

    >>> evaluate("(n + 7) // 8 * heads", {"n": 20, "heads": 4})
    12
    >>> evaluate("rows == batch + 1", {"rows": 9, "batch": 8})
    True
    """
    try:
        value: int | float | bool = _value(ast.parse(text, mode="eval").body, axes, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text, "is not an expression over axes") from None
    except ZeroDivisionError:
        raise _refused(text, "divides by zero") from None
    if isinstance(value, float):
        if not value.is_integer():
            raise _refused(text, f"is {value:g}, not a whole number; write // to round down")
        return int(value)
    return value


def is_over(text: str, axes: Mapping[str, int]) -> bool:
    """Return whether `text` uses only axes and arithmetic, so that `evaluate` accepts it."""
    try:
        evaluate(text, axes)
    except SpecError:
        return False
    return True


def fulfilled(text: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a constraint over settings holds: besides arithmetic, `and`, `or`, `not`, `in` and texts.

    Raises:
        SpecError: it is no such expression, or a name is not known.

    >>> fulfilled("block % 32 == 0 and (order == 'row' or not padded)", {"block": 64, "order": "row", "padded": 1})
    True
    """
    try:
        return _truth(_parsed(text), settings, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        raise _refused(text, "is not a constraint over numbers and texts") from None
    except ZeroDivisionError:
        raise _refused(text, "divides by zero") from None


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression uses.

    >>> sorted(names_in("a * b <= 4 * a"))
    ['a', 'b']
    """
    try:
        return frozenset(node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text, "is not an expression") from None


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _truth(node: ast.AST, settings: Mapping[str, Any], text: str) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_truth(part, settings, text) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _truth(node.operand, settings, text)
    if isinstance(node, ast.Compare):
        values = [_operand(part, settings, text) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        return all(_COMPARE_SETTINGS[type(op)](left, right) for op, left, right in pairs)
    return bool(_operand(node, settings, text))


def _operand(node: ast.AST, settings: Mapping[str, Any], text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_operand(part, settings, text) for part in node.elts]
    return _value(node, settings, text)


def _value(node: ast.AST, axes: Mapping[str, int], text: str) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in axes:
            raise _refused(text, f"uses {node.id!r}, which is no axis before it; there are {', '.join(axes) or 'none'}")
        return axes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, axes, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, axes, text), _value(node.right, axes, text)
        if isinstance(node.op, ast.Pow) and not 0 <= right <= 64:
            raise _refused(text, f"raises to the power {right}; 0 to 64 are allowed")
        value = _BINARY[type(node.op)](left, right)
        if abs(value) >= _LARGEST:
            raise _refused(text, "has more than 63 bits")
        return value
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [_value(part, axes, text) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        return all(_COMPARE[type(op)](left, right) for op, left, right in pairs)
    raise _refused(text, "is not an expression over axes: + - * / // % **, comparisons, whole numbers")


def _refused(text: str, why: str) -> SpecError:
    return SpecError(f"expression {text!r} {why}")
