"""Registry of runners: one file per runner, and plug-ins by the entry point `nearpeak.runners`."""

from collections.abc import Callable
from typing import Any

from nearpeak.base.registry import Registry
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Runner, RunnerAbilities
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.measurement.timed_runner import TimedRunner

__all__ = ["RUNNERS", "abilities_of", "backend_of", "factory_of", "runner_of"]


RUNNERS: Registry[Callable[..., Any]] = Registry.of_modules(
    "RUNNER", kind="runner", package=__name__, file=__file__, group="nearpeak.runners"
)
"""All runners by name; each is called with its argument, the words after the colon, and a Timing."""


def factory_of(text: str) -> Callable[..., Any]:
    """Return what makes the runner `name` or `name:argument`.

    Raises:
        UnknownNameError: there is none; for what looks like a function, the message says how to write that.

    >>> factory_of("k.py:f")
    Traceback (most recent call last):
    nearpeak.errors.UnknownNameError: runner 'k.py:f': not known; a function of yours is callable:k.py:f ('nearpeak \
show runners' lists all 15)
    """
    name, _, argument = text.partition(":")
    try:
        return RUNNERS[name]
    except UnknownNameError:
        if not name.endswith(".py") and not argument.partition("[")[0].isidentifier():
            raise
        listed = f"('nearpeak show runners' lists all {len(RUNNERS.names())})"
        yours = f"callable:{name}:{argument or 'FUNCTION'}"
        raise UnknownNameError(f"runner {text!r}: not known; a function of yours is {yours} {listed}") from None


def abilities_of(text: str) -> RunnerAbilities:
    """Return the abilities that the runner `name` or `name:argument` declares; none of all where it declares none."""
    abilities: RunnerAbilities = getattr(factory_of(text), "abilities", RunnerAbilities(devices=()))
    return abilities


def runner_of(text: str, timing: Timing = Timing(), process: str = "caller") -> Runner:
    """Return the runner that `name` or `name:argument` states.

    Args:
        process: how this process was started, as in `Method.process`.

    Raises:
        SpecError: it needs an argument, or takes none.

    >>> runner_of("null").name
    'null'
    """
    runner = backend_of(text, timing)
    argument = text.partition(":")[2]
    return TimedRunner(runner, timing, argument=argument, process=process) if hasattr(runner, "prepare") else runner


def backend_of(text: str, timing: Timing = Timing()) -> Any:
    """Return the backend or runner that `name` or `name:argument` states.

    Raises:
        SpecError: it needs an argument, or takes none.
    """
    name, colon, argument = text.partition(":")
    made = factory_of(text)
    wanted = made.abilities.argument if hasattr(made, "abilities") else argument
    if wanted and not argument:
        raise SpecError(f"runner {name}: needs an argument; write {name}:{wanted}")
    if colon and not wanted:
        raise SpecError(f"runner {name}: takes no argument, got {argument!r}; write {name}")
    return made(argument, timing)
