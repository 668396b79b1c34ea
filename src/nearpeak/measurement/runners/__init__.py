"""Registry of runners: one file per runner, and plug-ins by the entry point `nearpeak.runners`."""

from collections.abc import Callable
from typing import Any

from nearpeak.base.registry import Registry
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Runner, RunnerAbilities
from nearpeak.errors import SpecError
from nearpeak.measurement.timed_runner import TimedRunner

__all__ = ["RUNNERS", "abilities_of", "backend_of", "runner_of"]


RUNNERS: Registry[Callable[..., Any]] = Registry.of_modules(
    "RUNNER", kind="runner", package=__name__, file=__file__, group="nearpeak.runners"
)
"""All runners by name; each is called with its argument, the words after the colon, and a Timing."""


def abilities_of(text: str) -> RunnerAbilities:
    """Return the abilities that the runner `name` or `name:argument` declares; none of all where it declares none."""
    abilities: RunnerAbilities = getattr(RUNNERS[text.partition(":")[0]], "abilities", RunnerAbilities(devices=()))
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
    made = RUNNERS[name]
    wanted = made.abilities.argument if hasattr(made, "abilities") else argument
    if wanted and not argument:
        raise SpecError(f"runner {name}: needs an argument; write {name}:{wanted}")
    if colon and not wanted:
        raise SpecError(f"runner {name}: takes no argument, got {argument!r}; write {name}")
    return made(argument, timing)
