"""Commands that reproduce the figures of a page, ready to be copied."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.core.history.stored_run import Scalar, Series
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.history.stored_devices import case_of_series, target_of_device
from nearpeak.measurement.runners import RUNNERS
from nearpeak.ops import OPS
from nearpeak.web.site import Site


def case_words(series: Series) -> str:
    """Return a case as command-line words, default values left out; empty for a case of another tool."""
    try:
        case = case_of_series(series)
    except NearpeakError:
        return ""
    return _words(case, tuple(sorted((name, value) for name, value in series.parameters.items() if name != "op")))


@lru_cache(maxsize=4096)
def _words(case: Case, parameters: tuple[tuple[str, Scalar], ...]) -> str:
    remaining = dict(parameters)
    for name, _ in parameters:
        fewer = {other: value for other, value in remaining.items() if other != name}
        if _is_same(case, fewer):
            remaining = fewer
    return shlex.join([case.op, *(f"{name}={_value(value)}" for name, value in remaining.items())])


def _is_same(case: Case, parameters: Mapping[str, Any]) -> bool:
    """Say whether these parameters alone give the case."""
    arguments = dict(parameters)
    phase = str(arguments.pop("phase", "forward"))
    try:
        return OPS[case.op].case(phase, **arguments) == case
    except (NearpeakError, TypeError, LookupError):
        return False


def measure_command(series: Series) -> str:
    """Return the command that measures a case again as its series does; empty where nearpeak cannot."""
    words = case_words(series)
    if not words or series.testbed.name.partition(":")[0] not in RUNNERS:
        return ""
    cache = series.testbed.policy.get("cache")
    method = f" --cache {cache}" if cache in ("cold", "hot") else ""
    return f"nearpeak measure {words} --runner {shlex.quote(series.testbed.name)}{method}"


def store_option(site: Site) -> str:
    """Return how commands name the store of a site, as it was named when the site was opened.

    Static pages are public: they show its file name alone, and nothing where the name contains a password.
    """
    name = site.store.name
    if "://" not in name:
        return f" --store {shlex.quote(Path(name).name if site.setting.is_static else name)}"
    return "" if site.setting.is_static or ":***@" in name else f" --store {shlex.quote(name)}"


def commands_of_case(series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Yield commands about a case: measuring it with each runner, and bounding it on its devices."""
    runners = {measure_command(item): item.testbed.name for item in series}
    for command, runner in runners.items():
        if command:
            yield f"Measure it with {runner}", command
    words = case_words(series[0])
    targets = dict.fromkeys(item.name for each in series if (item := target_of_device(each.device)) is not None)
    if words and targets:
        names = " ".join(f"--target {name}" for name in targets)
        yield "What nothing can beat, and why", f"nearpeak bound {words} {names}"
        yield "What good software reaches", f"nearpeak predict {words} {names}"


def commands_of(site: Site, series: Series) -> Iterator[tuple[str, str]]:
    """Yield commands about a series, each with a short description."""
    measure = measure_command(series)
    if measure:
        yield "Measure it again", measure
    words, target = case_words(series), target_of_device(series.device)
    if words and target is not None:
        yield "What nothing can beat, and why", f"nearpeak bound {words} --target {target.name}"
        yield "What good software reaches", f"nearpeak predict {words} --target {target.name}"
    yield "Its history in the terminal", f"nearpeak history {series.id}{store_option(site)}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
