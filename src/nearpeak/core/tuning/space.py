"""A tuning space: parameters of a kernel with their possible values, and the constraints between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nearpeak.errors import SpecError, shown

Setting: TypeAlias = int | float | str | bool
"""Value of one parameter."""
Configuration: TypeAlias = tuple[Setting, ...]
"""A value for every parameter, in the order of the space."""
_NAME = re.compile(r"[A-Za-z_]\w*")
MOST_SETTINGS = 32_767
"""Most values of a parameter: a configuration is kept as the places of its values, 16 bits each."""
LARGEST = 2**63
"""Numbers of a configuration are below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a kernel, with its values in an order in which neighbours behave alike."""

    name: str
    """Name, as the function takes it."""
    settings: tuple[Setting, ...]
    """Its values."""

    def __post_init__(self) -> None:
        """Refuse a parameter that cannot be chosen.

        Raises:
            SpecError: its name is no name of a variable, it has no values or too many, or one of them twice: 1 and true
                are one value, and so are 1 and 1.0.
        """
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"parameter {shown(self.name)}: is no name; letters, digits and _ are allowed")
        if not self.settings:
            raise SpecError(f"parameter {self.name}: has no values; give at least one")
        odd = [value for value in self.settings if not isinstance(value, str) and not abs(value) < LARGEST]
        if odd:
            raise SpecError(f"parameter {self.name}: {shown(odd[0])} is no number below 2^63")
        if len(self.settings) > MOST_SETTINGS:
            raise SpecError(
                f"parameter {self.name}: has {len(self.settings):,} values; at most {MOST_SETTINGS:,} are searched"
            )
        if len(set(self.settings)) < len(self.settings):
            raise SpecError(f"parameter {self.name}: states a value twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSpace:
    """The configurations among which the best is sought."""

    name: str
    """Name for people."""
    parameters: tuple[Parameter, ...]
    """Parameters in order."""
    constraints: tuple[str, ...] = ()
    """Expressions over parameters and axes of the case that a legal configuration fulfils."""
    default: Configuration | None = None
    """Configuration in use today; none where the space states none."""
    listed: tuple[Configuration, ...] = ()
    """Configurations that exist, where they are listed instead of all combinations."""

    def named(self, configuration: Configuration) -> dict[str, Setting]:
        """Return the value of each parameter by its name."""
        names = (parameter.name for parameter in self.parameters)
        return dict(zip(names, configuration, strict=True))

    def configuration_of(self, named: Mapping[str, object], where: str) -> Configuration:
        """Return the configuration that gives each parameter a value.

        Raises:
            SpecError: a parameter is missing or unknown, or has no such value.
        """
        names = [parameter.name for parameter in self.parameters]
        wrong = sorted(set(named) ^ set(names))
        if wrong:
            kind = "is no parameter" if wrong[0] in named else "is missing"
            raise SpecError(f"{where}: {wrong[0]} {kind}; the space has {', '.join(names)}")
        values = []
        for parameter in self.parameters:
            value = named[parameter.name]
            same = [
                setting
                for setting in parameter.settings
                if setting == value and isinstance(setting, bool) == isinstance(value, bool)
            ]
            if not same:
                settings = ", ".join(map(str, parameter.settings))
                raise SpecError(f"{where}: {parameter.name} = {shown(value)} is none of its values: {settings}")
            values.append(same[0])
        return tuple(values)


def settings_text(named: Mapping[str, Setting]) -> str:
    """Return a configuration in words, as `module:function[…]` takes it.

    >>> settings_text({"block": 64, "order": "row", "padded": True})
    'block=64,order=row,padded=true'
    """
    texts = ((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in named.items())
    return ",".join(f"{name}={text}" for name, text in texts)


def settings_of(text: str, where: str) -> dict[str, Setting]:
    """Return the configuration that `settings_text` wrote.

    Raises:
        SpecError: it is not NAME=VALUE,….

    >>> settings_of("block=64,rate=0.5,order=row,padded=true", "--default")
    {'block': 64, 'rate': 0.5, 'order': 'row', 'padded': True}
    """
    named: dict[str, Setting] = {}
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        if not sign or not _NAME.fullmatch(name) or not value or name in named:
            raise SpecError(f"{where}: {part!r} is not NAME=VALUE, each name once; e.g. block=64,stages=2")
        named[name] = _setting(value)
    return named


def _setting(text: str) -> Setting:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
