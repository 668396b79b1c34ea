"""Conditions over the axes of a sweep, parsed against a whitelist instead of evaluated by Python."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.errors import SpecError

Values = Mapping[str, Any]
Term = Callable[[Values], Any]

_LARGEST_EXPONENT = 64
_LONGEST_TEXT = 1000


def _power(base: Any, exponent: Any) -> Any:
    if exponent > _LARGEST_EXPONENT or abs(base) > 2**64:
        raise SpecError(f"where: {base} ** {exponent} is too large; exponents go up to {_LARGEST_EXPONENT}")
    return base**exponent


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: _power,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "ceil_div": lambda left, right: -(-left // right), "gcd": math.gcd, "log2": math.log2,
}  # fmt: skip


def condition(text: object, names: frozenset[str]) -> Callable[[Values], bool]:
    """Return the test that `text` states over values called `names`.

    Allowed are whole numbers, texts, names, + - * // % **, comparisons, and, or, not, min, max, ceil_div, gcd, log2.

    Raises:
        SpecError: the text is not such a condition, or names something else.

    >>> condition("m * k <= 2**6 and m % 2 == 0", frozenset({"m", "k"}))({"m": 8, "k": 8})
    True
    """
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise SpecError(f"where: {str(text)[:40]!r} is not a text of up to {_LONGEST_TEXT} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        term = _term(tree.body, names, text)
    except SpecError:
        raise
    except (SyntaxError, ValueError, RecursionError):
        raise SpecError(f"where: {text!r} is not a condition; write e.g. 'm * k <= 2**26'") from None

    def test(values: Values) -> bool:
        try:
            return bool(term(values))
        except SpecError:
            raise
        except (ArithmeticError, TypeError, ValueError) as error:
            raise SpecError(f"where: {text!r} cannot be computed for {dict(values)} ({error})") from None

    return test


def names_in(text: str) -> frozenset[str]:
    """Return the names of the values in a condition that `condition` accepted.

    >>> sorted(names_in("max(m, k) <= 2**6"))
    ['k', 'm']
    """
    nodes = ast.walk(ast.parse(text.strip(), mode="eval"))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name)) - _FUNCTIONS.keys()


def _term(node: ast.AST, names: frozenset[str], text: str) -> Term:
    """Return the function of the values that `node` describes."""
    build = _TERMS.get(type(node))
    if build is None:
        raise SpecError(f"where: {text!r} uses {type(node).__name__}; allowed are arithmetic, comparisons, and/or/not")
    return build(node, names, text)


def _constant(node: Any, _names: frozenset[str], text: str) -> Term:
    if type(node.value) not in (int, str, bool):
        raise SpecError(f"where: {text!r} has {node.value!r}; constants are whole numbers or texts")
    return lambda _values: node.value


def _name(node: Any, names: frozenset[str], text: str) -> Term:
    if node.id not in names:
        raise SpecError(f"where: {text!r} names {node.id!r}; the sweep states {', '.join(sorted(names))}")
    return lambda values: values[node.id]


def _binary(node: Any, names: frozenset[str], text: str) -> Term:
    if type(node.op) not in _BINARY:
        raise SpecError(f"where: {text!r} uses {type(node.op).__name__}; arithmetic is + - * // % **")
    left, right, apply = _term(node.left, names, text), _term(node.right, names, text), _BINARY[type(node.op)]
    return lambda values: apply(left(values), right(values))


def _unary(node: Any, names: frozenset[str], text: str) -> Term:
    if type(node.op) not in _UNARY:
        raise SpecError(f"where: {text!r} uses {type(node.op).__name__}; signs are - and not")
    operand, apply = _term(node.operand, names, text), _UNARY[type(node.op)]
    return lambda values: apply(operand(values))


def _boolean(node: Any, names: frozenset[str], text: str) -> Term:
    terms = [_term(value, names, text) for value in node.values]
    if isinstance(node.op, ast.And):
        return lambda values: all(term(values) for term in terms)
    return lambda values: any(term(values) for term in terms)


def _compare(node: Any, names: frozenset[str], text: str) -> Term:
    if any(type(op) not in _COMPARE for op in node.ops):
        raise SpecError(f"where: {text!r} uses a comparison other than < <= > >= == !=")
    terms = [_term(item, names, text) for item in (node.left, *node.comparators)]
    tests = [_COMPARE[type(op)] for op in node.ops]

    def chained(values: Values) -> bool:
        results = [term(values) for term in terms]
        return all(test(left, right) for test, left, right in zip(tests, results[:-1], results[1:], strict=True))

    return chained


def _call(node: Any, names: frozenset[str], text: str) -> Term:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _FUNCTIONS or node.keywords:
        raise SpecError(f"where: {text!r} calls something other than {', '.join(_FUNCTIONS)}")
    arguments, apply = [_term(item, names, text) for item in node.args], _FUNCTIONS[name]
    return lambda values: apply(*(argument(values) for argument in arguments))


_TERMS: dict[type, Callable[[Any, frozenset[str], str], Term]] = {
    ast.Constant: _constant, ast.Name: _name, ast.BinOp: _binary, ast.UnaryOp: _unary, ast.BoolOp: _boolean,
    ast.Compare: _compare, ast.Call: _call,
}  # fmt: skip
