"""Arithmetic written down while it runs once, to be run again on other numbers: no formula has a second copy."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from nearpeak.predict._script_code import KNOWN, Line, function_of

_LARGER, _SMALLER = "({1} if {1} > {0} else {0})", "({1} if {1} < {0} else {0})"
_OPERATORS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "truediv": "{0} / {1}", "floordiv": "{0} // {1}",
    "mod": "{0} % {1}", "pow": "{0} ** {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}",
}  # fmt: skip
"""Python's operators by the name of their method."""
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_UFUNCS = {
    "maximum": _LARGER, "minimum": _SMALLER, "add": _OPERATORS["add"], "subtract": _OPERATORS["sub"],
    "multiply": _OPERATORS["mul"], "divide": _OPERATORS["truediv"], "remainder": _OPERATORS["mod"],
    "floor_divide": _OPERATORS["floordiv"], "less": "{0} < {1}", "less_equal": "{0} <= {1}", "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}", "equal": "{0} == {1}", "not_equal": "{0} != {1}", "gcd": "gcd({0}, {1})",
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}",
    "ceil": "float(ceil({0}))", "sqrt": "sqrt({0})", "exp": "float(exp({0}))",
    "log": "float(log({0}))", "log2": "float(log2({0}))", "hypot": "float(hypot({0}, {1}))",
}  # fmt: skip
"""What stands for a function of NumPy, of one number: the same value to the last bit."""
_FUNCTIONS = {"where": "({1} if {0} else {2})", "clip": "({1} if {0} < {1} else {2} if {0} > {2} else {0})"}
_FLOAT = "float({0})"
_GIVE_FLOATS = ("float(", "sqrt(", "power(", "exponential(")
"""What expressions begin with that are floats, whatever their arguments are."""
_LITERALS = (0, 1)
"""Numbers that stand in the code itself."""
_NEUTRAL = {"{0} * {1}": (1, (0, 1)), "{0} + {1}": (0, (0, 1)), "{0} - {1}": (0, (0,)), "{0} / {1}": (1, (0,))}
"""Numbers that change nothing, and which argument they leave as it is."""
_OF_ITSELF = {f"{{0}} {sign} {{1}}": sign in ("<=", ">=", "==") for sign in _COMPARISONS.values()}
"""What comparing a number with itself gives."""
_EQUAL = "{0} == {1}"


class NotWrittenError(TypeError):
    """Something that cannot be written down was done to a number of a script."""


class Script:
    """Lines of arithmetic, in the order in which they were done."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._known: dict[str, Any] = {}  # what each expression was written down as, so that none is twice
        self._names: dict[tuple[type, Any], str] = {}  # what constants are called
        self._constants: dict[str, Any] = {}  # what lines name
        self._outcomes: dict[str, bool] = {}  # conditions that the script holds under
        self._floats: dict[str, Any] = {}  # what each float was made of; nothing where a function gave it
        self._equal: dict[str, tuple[Placeholder, Any]] = {}  # what a condition says to be which number
        self._fixed: dict[str, Any] = {}  # what names stand for under the conditions so far

    def argument(self, name: str, value: Any) -> "Placeholder":
        """Return what stands for an argument, which has this value while the script is written."""
        return Placeholder(self, name, value)

    def alike(self, name: str, other: Any) -> Any:
        """Return `other`, a number or what stands for one, for an argument: the script holds where both are equal."""
        self._lines.append(Line(names=(), text=f"if {name} != {self._text(other)}: return None", uses=_names((other,))))
        return other

    def written(self, template: str, arguments: Sequence[Any]) -> Any:
        """Return what stands for the value of an expression of arguments, or that value where it is always the same."""
        arguments = [self._settled(one) for one in arguments]
        if not _names(arguments):
            return _evaluated(template, len(arguments))(*arguments)
        simpler = self._decided(template, arguments) or _unchanged(template, arguments)
        if simpler:
            return simpler[0]
        text = template.format(*map(self._text, arguments))
        if text not in self._known:
            name, value = f"x{len(self._lines)}", _evaluated(template, len(arguments))(*map(_value, arguments))
            self._lines.append(Line(names=(name,), text=text, uses=_names(arguments)))
            self._known[text] = Placeholder(self, name, value)
            if template.startswith(_GIVE_FLOATS):
                self._floats[name] = arguments[0] if template == _FLOAT else None
            elif template == _EQUAL and len(_names(arguments)) == 1:
                self._equal[name] = _ordered(arguments)
        return self._known[text]

    def called(self, function: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str] = ()) -> Any:
        """Return what stands for what a function gives: one value, or several where it is a list.

        Args:
            names: those of the last arguments, where they are passed by name.
        """
        arguments, first = [self._settled(one) for one in arguments], len(arguments) - len(names)
        named = [f"{name}={self._text(one)}" for name, one in zip(names, arguments[first:], strict=True)]
        text = f"{self._text(function)}({', '.join([*map(self._text, arguments[:first]), *named])})"
        if text not in self._known:
            values, name = list(map(_value, arguments)), f"x{len(self._lines)}"
            found = function(*values[:first], **dict(zip(names, values[first:], strict=True)))
            several = [f"{name}_{place}" for place in range(len(found))] if isinstance(found, list) else []
            self._lines.append(Line(names=tuple(several or [name]), text=text, uses=_names(arguments)))
            self._known[text] = (
                [Placeholder(self, one, value) for one, value in zip(several, found, strict=True)]
                if several
                else Placeholder(self, name, found)
            )
        return self._known[text]

    def required(self, what: "Placeholder") -> bool:
        """Return a condition, which the script holds for alone."""
        held = bool(what.value)
        if what.name not in self._outcomes:
            self._outcomes[what.name] = held
            text = f"if {'not ' if held else ''}{what.name}: return None"
            self._lines.append(Line(names=(), text=text, uses=(what.name,)))
            if held and what.name in self._equal:
                self._fix(*self._equal[what.name])
        return held

    def _fix(self, one: "Placeholder", number: Any) -> None:
        """Keep what a name stands for from here on, and what it was made of where that is an integer."""
        self._fixed[one.name] = type(one.value)(number)
        source = self._floats.get(one.name)
        if isinstance(source, Placeholder) and type(source.value) is int:
            self._fixed[source.name] = int(number)

    def _settled(self, argument: Any) -> Any:
        """Return the number that an argument is, where it is always the same one."""
        if isinstance(argument, Placeholder):
            return self._fixed.get(argument.name, argument)
        is_numpy = isinstance(argument, np.generic) or (isinstance(argument, np.ndarray) and argument.ndim == 0)
        return argument.item() if is_numpy else argument

    def _decided(self, template: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return which of two a choice always takes, or a float that is made one again; nothing of other expressions.

        Comparisons of an integer, or of one made a float, with itself have one outcome too: it is a number.
        """
        first = arguments[0]
        if template == _FUNCTIONS["where"]:
            outcome = self._outcomes.get(first.name) if isinstance(first, Placeholder) else bool(first)
            if outcome is None:
                return (arguments[1],) if _is_one(*arguments[1:]) else ()
            return (arguments[1] if outcome else arguments[2],)
        if template in _OF_ITSELF and _is_one(*arguments):
            source = self._floats.get(first.name, first)
            return (_OF_ITSELF[template],) if type(_value(source)) is int else ()
        return (first,) if template == _FLOAT and first.name in self._floats else ()

    def function(
        self, arguments: Sequence[str], result: "Placeholder", names: Sequence[str] = ()
    ) -> Callable[..., Any]:
        """Return the script as a function, which returns None where a condition that it was written under fails.

        Args:
            names: where they are stated the function takes one tuple, of these names each with its argument.
        """
        needed, kept = {result.name}, list[Line]()
        for line in reversed(self._lines):
            if not line.names or needed.intersection(line.names):
                needed.update(line.uses)
                kept.append(line)
        last = Line(names=(), text=f"return {result.name}", uses=(result.name,))
        return function_of(arguments, names, [*reversed(kept), last], self._constants)

    def _text(self, argument: Any) -> str:
        if isinstance(argument, Placeholder):
            return argument.name
        if isinstance(argument, np.generic):
            argument = argument.item()
        if isinstance(argument, bool) or (type(argument) is int and argument in _LITERALS):
            return f"({argument!r})"
        key = (type(argument), repr(argument) if isinstance(argument, (int, float, str)) else id(argument))
        name = self._names.setdefault(key, f"k{len(self._names)}")
        self._constants[name] = argument
        return name


class Placeholder:
    """A number of a script: what is done to it is written down; what cannot be is refused."""

    __slots__ = ("name", "script", "value")
    __hash__ = None  # type: ignore[assignment]  # no cache may keep what one number gave for another

    def __init__(self, script: Script, name: str, value: Any) -> None:
        self.script, self.name, self.value = script, name, value

    def __bool__(self) -> bool:
        return self.script.required(self)

    def __neg__(self) -> Any:
        return self.script.written("-{0}", (self,))

    def in_floats(self) -> Any:
        """Return it as a float."""
        return self.script.written(_FLOAT, (self,))

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **more: Any) -> Any:
        template = _UFUNCS.get(function.__name__)
        if template is None or method != "__call__" or more:
            raise NotWrittenError(f"predict: np.{function.__name__} cannot be written down")
        return self.script.written(template, inputs)

    def __array_function__(self, function: Any, _types: Iterable[type], inputs: Any, more: Any) -> Any:
        if function is np.any:
            return self
        if function is np.shape:
            return ()
        template = _FUNCTIONS.get(function.__name__)
        if template is None or more:
            raise NotWrittenError(f"predict: np.{function.__name__} cannot be written down")
        return self.script.written(template, inputs)

    def _refused(self, *_: Any) -> Any:
        raise NotWrittenError(f"predict: {self.name} of a script has no value of its own")

    __float__ = __int__ = __index__ = __iter__ = __len__ = __array__ = _refused


def _add_operators() -> None:
    """Give placeholders the operators of numbers."""

    def way(template: str) -> Callable[..., Placeholder]:
        return lambda self, other: self.script.written(template, (self, other))

    def back(template: str) -> Callable[..., Placeholder]:
        return lambda self, other: self.script.written(template, (other, self))

    for name, template in _OPERATORS.items():
        setattr(Placeholder, f"__{name}__", way(template))
        setattr(Placeholder, f"__r{name}__", back(template))
    for name, sign in _COMPARISONS.items():
        setattr(Placeholder, f"__{name}__", way(f"{{0}} {sign} {{1}}"))


_add_operators()


def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a function of numbers gives; within a script it is called as it is.

    >>> called(max, 1, 2)
    2
    """
    every = (*arguments, *named.values())
    script = next((one.script for one in every if isinstance(one, Placeholder)), None)
    return function(*arguments, **named) if script is None else script.called(function, every, tuple(named))


def together(values: Iterable[Any]) -> Any:
    """Return numbers as a tuple, which functions that are `called` take as one argument.

    >>> together([1, 2.0])
    (1, 2.0)
    """
    found = tuple(values)
    script = next((one.script for one in found if isinstance(one, Placeholder)), None)
    template = "".join(f"{{{place}}}, " for place in range(len(found)))
    return found if script is None else script.written(f"({template})", found)


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Placeholder) else argument


def _names(arguments: Iterable[Any]) -> tuple[str, ...]:
    return tuple(one.name for one in arguments if isinstance(one, Placeholder))


def _ordered(arguments: Sequence[Any]) -> tuple[Placeholder, Any]:
    """Return two arguments, the one first that has no value of its own."""
    first, second = arguments
    return (first, second) if isinstance(first, Placeholder) else (second, first)


def _is_one(first: Any, second: Any) -> bool:
    """Return whether two arguments are the same to the last bit, whatever the script runs on."""
    if isinstance(first, Placeholder) or isinstance(second, Placeholder):
        return first is second
    return type(first) is type(second) and repr(first) == repr(second)


def _unchanged(template: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the argument that an expression is, such as a number times 1; nothing where it is another number.

    An integer over 1 becomes a float, and an integer times 0 is 0.
    """
    if template in ("{0} & {1}", "{0} | {1}", "{0} * {1}"):
        found = _absorbed(template[4], *_ordered(arguments))
        if found:
            return found
    neutral, places = _NEUTRAL.get(template, (None, ()))
    for place in places:
        kept, other = arguments[place], arguments[1 - place]
        known = _value(kept)
        is_same = isinstance(known, float) or (type(known) is int and "/" not in template)
        if is_same and not isinstance(other, Placeholder) and other == neutral:
            return (kept,)
    return ()


def _absorbed(sign: str, one: Placeholder, other: Any) -> tuple[Any, ...]:
    """Return what is left of a truth beside a known one, or of an integer times 0."""
    if sign == "*":
        return (0,) if type(one.value) is int and type(other) in (int, bool) and other == 0 else ()
    if type(one.value) not in (bool, np.bool_) or type(other) is not bool:
        return ()
    return (one if other is (sign == "&") else other,)


@cache
def _evaluated(template: str, count: int) -> Callable[..., Any]:
    """Return a template as a function of numbers."""
    names = [f"v{place}" for place in range(count)]
    found: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {template.format(*names)}", dict(KNOWN))
    return found
