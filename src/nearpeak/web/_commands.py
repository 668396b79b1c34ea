"""The commands that reproduce what a page shows, ready to be copied."""

import shlex
from collections.abc import Iterator

from nearpeak.core.history import Series
from nearpeak.errors import NearpeakError
from nearpeak.history.devices import case_of_series, target_of_device
from nearpeak.measure.runners import RUNNERS


def case_words(one: Series) -> str:
    """Return a case as words of the command line; empty where it is of another tool."""
    try:
        case_of_series(one)
    except NearpeakError:
        return ""
    rest = {name: value for name, value in one.parameters.items() if name != "op"}
    if rest.get("phase") == "forward":
        del rest["phase"]
    words = [str(one.parameters["op"]), *(f"{name}={_value(value)}" for name, value in rest.items())]
    return shlex.join(words)


def measure_command(one: Series) -> str:
    """Return the command that measures a case again as its series does; empty where nearpeak cannot."""
    words = case_words(one)
    if not words or one.testbed.name.partition(":")[0] not in RUNNERS:
        return ""
    cache = one.testbed.policy.get("cache")
    method = f" --cache {cache}" if cache in ("cold", "hot") else ""
    return f"nearpeak measure {words} --runner {shlex.quote(one.testbed.name)}{method}"


def commands_of(one: Series) -> Iterator[tuple[str, str]]:
    """Yield what can be asked about a case, each with a word on what it does."""
    measure = measure_command(one)
    if measure:
        yield "Measure it again", measure
    words, target = case_words(one), target_of_device(one.device)
    if words and target is not None:
        yield "What nothing can beat, and why", f"nearpeak bound {words} --target {target.name}"
        yield "What good software reaches", f"nearpeak predict {words} --target {target.name}"
    yield "Its history in the terminal", f"nearpeak history {one.id}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
