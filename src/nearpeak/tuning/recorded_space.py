"""Reader of recorded tuning spaces: T4 results and caches of kernel_tuner, every configuration with its times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeAlias

from nearpeak.base.input_files import border, bytes_of_file, json_value, reading, unpacked
from nearpeak.core.tuning.space import LARGEST, Configuration, Parameter, Setting, TuningSpace
from nearpeak.errors import SpecError, shown

_UNITS_S = {
    "milliseconds": 1e-3,
    "miliseconds": 1e-3,
    "ms": 1e-3,
    "microseconds": 1e-6,
    "us": 1e-6,
    "seconds": 1.0,
    "s": 1.0,
}
"""Seconds of the time units that the two formats state; the misspelt one is what T4 files hold."""
_OBJECTIVE = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTimes:
    """What was recorded of one configuration."""

    time_s: float
    """Time of one call as the record states it; infinite where the configuration failed."""
    samples_s: tuple[float, ...]
    """Time of each call; empty where it failed."""
    note: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpace:
    """A tuning space whose every configuration was measured before."""

    space: TuningSpace
    """The space, its configurations listed."""
    times: Mapping[Configuration, RecordedTimes]
    """What each configuration took."""

    @property
    def best_s(self) -> float:
        """Least time of all."""
        return min(recorded.time_s for recorded in self.times.values())

    def count_within(self, margin_ratio: float) -> int:
        """Return how many configurations are at most so much slower than the best."""
        return sum(recorded.time_s <= (1 + margin_ratio) * self.best_s for recorded in self.times.values())


_Row: TypeAlias = tuple[str, dict[str, Any], RecordedTimes]
"""Place in the file, configuration, and what was recorded of it."""


@border("recorded tuning space")
def read_recorded_space(path: Path) -> RecordedSpace:
    """Return a recorded space from T4 JSON or a cache of kernel_tuner, plain or packed by gzip.

    Raises:
        SpecError: it is neither, no configuration in it has a time, or one lacks a parameter that others have.
    """
    data = json_value(unpacked(bytes_of_file(path), path))
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        rows = _t4_rows(data, path)
    elif isinstance(data, dict) and isinstance(data.get("cache"), dict):
        rows = _cache_rows(data, path)
    else:
        raise SpecError(f"{path}: is no recorded tuning space; T4 'results' or a kernel_tuner 'cache' is expected")
    names, settings = _parameters((where, named) for where, named, _ in rows)
    if not names:
        raise SpecError(f"{path}: no parameter in it takes two values, so there is nothing to search")
    times = {tuple(named[name] for name in names): recorded for _, named, recorded in rows}
    if not any(isfinite(recorded.time_s) for recorded in times.values()):
        raise SpecError(f"{path}: no configuration in it has a time")
    parameters = tuple(Parameter(name=name, settings=settings[name]) for name in names)
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return RecordedSpace(space=TuningSpace(name=name, parameters=parameters, listed=tuple(times)), times=times)


def _t4_rows(data: Mapping[str, Any], path: Path) -> list[_Row]:
    """Return each configuration of a T4 file with its place in the file and what was recorded of it."""
    metadata, rows = data.get("metadata", {}), list[_Row]()
    unit = str(metadata.get("timeunit", "milliseconds") if isinstance(metadata, dict) else metadata).lower()
    if unit not in _UNITS_S:
        raise SpecError(f"{path}: metadata.timeunit is {shown(unit)}; one of {', '.join(_UNITS_S)} is right")
    for number, row in enumerate(data["results"]):
        where = f"{path}: results[{number}]"
        with reading(where, "configuration"):
            named = dict(row["configuration"])
            if row.get("invalidity", "correct") != "correct" or not row.get("correctness", 1):
                recorded = RecordedTimes(time_s=inf, samples_s=(), note=str(row.get("invalidity", "")))
            else:
                stated = [metric["value"] for metric in row["measurements"] if metric["name"] == _OBJECTIVE]
                if not stated:
                    raise SpecError(f"{where}: measures no {_OBJECTIVE}")
                recorded = _recorded(stated[0], row["times"].get("runtimes") or stated, _UNITS_S[unit])
        rows.append((where, named, recorded))
    return rows


def _cache_rows(data: Mapping[str, Any], path: Path) -> list[_Row]:
    """Return the same of a cache of kernel_tuner."""
    names, rows = data.get("tune_params_keys"), list[_Row]()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{path}: tune_params_keys is {shown(names)}; a list of names is right")
    for key, row in data["cache"].items():
        where = f"{path}: cache[{shown(key)}]"
        with reading(where, "configuration"):
            recorded = _recorded(row[_OBJECTIVE], row.get("times") or [row[_OBJECTIVE]], 1e-3)
            rows.append((where, {name: row[name] for name in names}, recorded))
    return rows


def _recorded(time: Any, samples: Iterable[Any], unit_s: float) -> RecordedTimes:
    """Return times in seconds; caches of kernel_tuner state a failure in place of the time."""
    if not isinstance(time, int | float):
        return RecordedTimes(time_s=inf, samples_s=(), note=str(time))
    samples_s = tuple(float(sample) * unit_s for sample in samples)
    if not 0 < time < inf or not all(0 < sample_s < inf for sample_s in samples_s):
        return RecordedTimes(time_s=inf, samples_s=(), note=f"its time {shown(time)} is no time")
    return RecordedTimes(time_s=time * unit_s, samples_s=samples_s)


def _parameters(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[list[str], dict[str, tuple[Setting, ...]]]:
    """Return the parameters that take several values, and those values in order."""
    values: dict[str, dict[Setting, None]] = {}
    for where, row in rows:
        values = values or {name: {} for name in row}
        if wrong := sorted(set(row) ^ set(values)):
            states = "states" if wrong[0] in row else "lacks"
            raise SpecError(f"{where}: {states} {shown(wrong[0])}, unlike the configurations before it")
        for name, value in row.items():
            if not isinstance(value, int | float | str) or (not isinstance(value, str) and not abs(value) < LARGEST):
                raise SpecError(
                    f"{where}: {shown(name)} is {shown(value)}; a number below 2^63, a text or a truth is right"
                )
            values[name][value] = None
    # Numbers in their order, so that neighbours behave alike; texts as they came.
    varied = {
        name: tuple(seen if any(isinstance(value, str) for value in seen) else sorted(seen, key=float))
        for name, seen in values.items()
        if len(seen) > 1
    }
    return list(varied), varied
