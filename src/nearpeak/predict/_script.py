"""Arithmetic written down while it runs once, to be run again on other numbers: no formula has a second copy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, gcd
from typing import Any

import numpy as np

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
    "ceil": "float(ceil({0}))", "sqrt": "float(np.sqrt({0}))", "exp": "float(np.exp({0}))",
    "log": "float(np.log({0}))", "log2": "float(np.log2({0}))", "hypot": "float(np.hypot({0}, {1}))",
    "power": "float(np.power({0}, {1}))",
}  # fmt: skip
"""What stands for a function of NumPy, of one number: the same value to the last bit."""
_FUNCTIONS = {"where": "({1} if {0} else {2})", "clip": "({1} if {0} < {1} else {2} if {0} > {2} else {0})"}
_NEUTRAL = {"{0} * {1}": (1, (0, 1)), "{0} + {1}": (0, (0, 1)), "{0} - {1}": (0, (0,)), "{0} / {1}": (1, (0,))}
"""Numbers that change no float, and which argument they leave as it is."""
_KNOWN = {"np": np, "ceil": ceil, "gcd": gcd}
"""Names that scripts may use."""


class NotWrittenError(TypeError):
    """Something that cannot be written down was done to a number of a script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    names: tuple[str, ...]
    """What it defines; nothing where it is a condition that the script holds for."""
    text: str
    uses: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Script:
    """Lines of arithmetic, in the order in which they were done."""

    lines: list[_Line] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    """What each expression was written down as, so that none is twice."""
    objects: dict[str, Any] = field(default_factory=dict)
    """Objects that lines name."""

    def argument(self, name: str, value: Any) -> "Placeholder":
        """Return what stands for an argument, which has this value while the script is written."""
        return Placeholder(self, name, value)

    def written(self, template: str, arguments: Sequence[Any]) -> "Placeholder":
        """Return what stands for the value of an expression of arguments."""
        unchanged = _unchanged(template, arguments)
        if unchanged is not None:
            return unchanged
        text = template.format(*map(self._text, arguments))
        if text not in self.known:
            name, value = f"x{len(self.lines)}", _evaluated(template, len(arguments))(*map(_value, arguments))
            self.lines.append(_Line(names=(name,), text=text, uses=_names(arguments)))
            self.known[text] = Placeholder(self, name, value)
        found: Placeholder = self.known[text]
        return found

    def called(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Return what stands for what a function gives: one value, or several where it is a list."""
        text = f"{self._text(function)}({', '.join(map(self._text, arguments))})"
        if text not in self.known:
            found, name = function(*map(_value, arguments)), f"x{len(self.lines)}"
            several = [f"{name}_{place}" for place in range(len(found))] if isinstance(found, list) else []
            self.lines.append(_Line(names=tuple(several or [name]), text=text, uses=_names(arguments)))
            self.known[text] = (
                [Placeholder(self, one, value) for one, value in zip(several, found, strict=True)]
                if several
                else Placeholder(self, name, found)
            )
        return self.known[text]

    def required(self, what: "Placeholder") -> bool:
        """Return a condition, which the script holds for alone."""
        held, text = bool(what.value), f"if {'not ' if what.value else ''}{what.name}: return None"
        if text not in self.known:
            self.lines.append(_Line(names=(), text=text, uses=(what.name,)))
            self.known[text] = held
        return held

    def function(self, arguments: Sequence[str], result: "Placeholder") -> Callable[..., Any]:
        """Return the script as a function, which returns None where a condition that it was written under fails."""
        needed, kept = {result.name}, list[str]()
        for line in reversed(self.lines):
            if not line.names or needed.intersection(line.names):
                needed.update(line.uses)
                kept.append(f"{', '.join(line.names)} = {line.text}" if line.names else line.text)
        body = "\n    ".join([*reversed(kept), f"return {result.name}"])
        space: dict[str, Any] = {**_KNOWN, **self.objects}
        exec(f"def script({', '.join(arguments)}):\n    {body}", space)  # lines of this file
        found: Callable[..., Any] = space["script"]
        return found

    def _text(self, argument: Any) -> str:
        if isinstance(argument, Placeholder):
            return argument.name
        if isinstance(argument, np.generic):
            argument = argument.item()
        if isinstance(argument, (bool, int)) or (isinstance(argument, float) and np.isfinite(argument)):
            return f"({argument!r})"
        name = f"o{id(argument)}"
        self.objects[name] = argument
        return name


class Placeholder:
    """A number of a script: what is done to it is written down; what cannot be is refused."""

    __slots__ = ("name", "script", "value")
    __hash__ = None  # type: ignore[assignment]  # no cache may keep what one number gave for another

    def __init__(self, script: Script, name: str, value: Any) -> None:
        self.script, self.name, self.value = script, name, value

    def __bool__(self) -> bool:
        return self.script.required(self)

    def __neg__(self) -> "Placeholder":
        return self.script.written("-{0}", (self,))

    def in_floats(self) -> "Placeholder":
        """Return it as a float."""
        return self.script.written("float({0})", (self,))

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


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of numbers gives; within a script it is called as it is.

    >>> called(max, 1, 2)
    2
    """
    script = next((one.script for one in arguments if isinstance(one, Placeholder)), None)
    return function(*arguments) if script is None else script.called(function, arguments)


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Placeholder) else argument


def _names(arguments: Iterable[Any]) -> tuple[str, ...]:
    return tuple(one.name for one in arguments if isinstance(one, Placeholder))


def _unchanged(template: str, arguments: Sequence[Any]) -> Placeholder | None:
    """Return the argument that an expression is, such as a float times 1; none where it is another number."""
    neutral, places = _NEUTRAL.get(template, (None, ()))
    for place in places:
        kept, other = arguments[place], arguments[1 - place]
        if isinstance(_value(kept), float) and not isinstance(other, Placeholder) and other == neutral:
            found: Placeholder = kept
            return found
    return None


@cache
def _evaluated(template: str, count: int) -> Callable[..., Any]:
    """Return a template as a function of numbers."""
    names = [f"v{place}" for place in range(count)]
    found: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {template.format(*names)}", dict(_KNOWN))
    return found
