"""Element-wise formulas as text: their FLOP, their operands and their evaluation with NumPy."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.ops.shared.reference.error_functions import erf, erfc
from nearpeak.ops.shared.reference.special_functions import SPECIAL

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "minimum": np.minimum, "maximum": np.maximum, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "round": np.round, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "copysign": np.copysign, "signbit": np.signbit, "ldexp": lambda x, n: x * np.exp2(n),
}  # fmt: skip
"""Functions that count as one FLOP, like + - * and comparisons."""

_SELECTION: Mapping[str, Callable[..., Any]] = {
    "where": np.where, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "logical_not": np.logical_not, "left_shift": np.left_shift,
    "right_shift": np.right_shift, "gcd": np.gcd, "lcm": np.lcm, "nextafter": np.nextafter,
    "mantissa": lambda x: np.frexp(x)[0],
}  # fmt: skip
"""Functions on truth values, integers and bits: no FLOP."""

_SPECIAL: Mapping[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "erf": erf, "erfc": erfc,
    "remainder": np.mod, "fmod": np.fmod, "hypot": np.hypot,
    "logaddexp": np.logaddexp, **SPECIAL,
}  # fmt: skip
"""Functions that count as one special evaluation, like division and powers."""

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
"""Functions of the operators of an expression."""

_NAMESPACE = {**_ARITHMETIC, **_SELECTION, **_SPECIAL, "inf": math.inf, "pi": math.pi}


_FINEST = {"fp64": (52, -1022), "fp32": (23, -126), "fp16": (10, -14), "bf16": (7, -126)}
"""Bits of the fraction and the least exponent of formats (IEEE 754-2019; bf16 has the exponents of fp32)."""


def next_after(a: Any, b: Any, dtype: str) -> Any:
    """Return the number of the format `dtype` that follows `a` towards `b`.

    >>> next_after(np.array([1.0, 1.0, 0.0]), np.array([2.0, 0.0, 1.0]), "bf16").tolist()
    [1.0078125, 0.99609375, 9.183549615799121e-41]
    """
    bits, least = _FINEST[dtype]
    towards = np.sign(b - a)
    exponent = np.frexp(np.where(a == 0, 1.0, a))[1] - 1
    # Below a power of two numbers are twice as dense.
    exponent -= (np.abs(a) == np.exp2(1.0 * exponent)) & (np.sign(a) * towards < 0)
    step = np.exp2(1.0 * np.where(a == 0, least, np.maximum(exponent, least)) - bits)
    return a + towards * step


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One expression of operands a, b, c, result y and upstream gradient g, per element."""

    flop_count: int
    """Distinct additions, multiplications, comparisons and the like; an expression that occurs twice counts once."""
    special_count: int
    """Distinct divisions, powers, roots, exponentials and the like."""
    operands: frozenset[str]
    """Names among a, b, c, y, g that occur."""
    expression: ast.expr
    """The parsed expression."""

    def __call__(self, **operands: Any) -> Any:
        """Return the value in NumPy, in float64 where the operands are."""
        with np.errstate(all="ignore"):
            return _value(self.expression, {**_NAMESPACE, **operands})


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression whose names are functions and operands."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Call(func=function, args=arguments):
            return _value(function, names)(*(_value(argument, names) for argument in arguments))
        case ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right]):
            return _OPERATORS[type(sign)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=sign, operand=operand):
            return _OPERATORS[type(sign)](_value(operand, names))
    raise SpecError(f"formula: {ast.unparse(node)!r} is no call, sign, name or number")


@cache
def formula(text: str) -> Formula:
    """Return what the expression `text` costs and computes.

    >>> gelu = formula("0.5 * a * (1 + erf(0.7071067811865476 * a))")
    >>> gelu.flop_count, gelu.special_count, float(gelu(a=0.0))
    (4, 1, 0.0)
    """
    return formulas(text)[0]


@cache
def formulas(*texts: str) -> tuple[Formula, ...]:
    """Return one formula per text; what a text shares with an earlier one costs nothing again."""
    seen: set[str] = set()
    return tuple(_parsed(text, seen) for text in texts)


def _parsed(text: str, seen: set[str]) -> Formula:
    tree = ast.parse(text, mode="eval")
    counts = {"flop": 0, "special": 0, "": 0}
    for node in ast.walk(tree):
        key = ast.dump(node)
        if key not in seen:
            counts[_kind(node)] += 1
            seen.add(key)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Formula(
        flop_count=counts["flop"],
        special_count=counts["special"],
        operands=frozenset(names & {"a", "b", "c", "y", "g"}),
        expression=tree.body,
    )


def _kind(node: ast.AST) -> str:
    """Return what one node of an expression counts as: `flop`, `special` or nothing."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name not in _NAMESPACE:
            raise SpecError(f"formula: {name!r} is no known function; there are {', '.join(_NAMESPACE)}")
        return "flop" if name in _ARITHMETIC else "special" if name in _SPECIAL else ""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Div, ast.Pow)):
            return "special"
        return "flop" if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) else ""
    if isinstance(node, ast.UnaryOp):
        return "flop" if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant) else ""
    return "flop" if isinstance(node, ast.Compare) else ""
