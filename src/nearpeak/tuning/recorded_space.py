"""Reader of recorded tuning spaces: T4 results and caches of kernel_tuner, every configuration with its times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, bytes_of_file, json_value, unpacked
from nearpeak.core.tuning.space import Configuration, Parameter, Setting, TuningSpace
from nearpeak.errors import SpecError

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


@border("recorded tuning space")
def read_recorded_space(path: Path) -> RecordedSpace:
    """Return a recorded space from T4 JSON or a cache of kernel_tuner, plain or packed by gzip.

    Raises:
        SpecError: it is neither, or no configuration in it has a time.
    """
    data = json_value(unpacked(bytes_of_file(path), path))
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        unit = str(data.get("metadata", {}).get("timeunit", "milliseconds")).lower()
        if unit not in _UNITS_S:
            raise SpecError(f"{path}: metadata.timeunit is {unit!r}; one of {', '.join(_UNITS_S)} is right")
        rows = [_t4_row(row, _UNITS_S[unit]) for row in data["results"]]
    elif isinstance(data, dict) and isinstance(data.get("cache"), dict):
        names = [str(name) for name in data["tune_params_keys"]]
        rows = [
            (
                {name: row[name] for name in names},
                _recorded(row[_OBJECTIVE], row.get("times") or [row[_OBJECTIVE]], 1e-3),
            )
            for row in data["cache"].values()
        ]
    else:
        raise SpecError(f"{path}: is no recorded tuning space; T4 'results' or a kernel_tuner 'cache' is expected")
    names, settings = _parameters(row for row, _ in rows)
    times = {tuple(row[name] for name in names): recorded for row, recorded in rows}
    if not any(isfinite(recorded.time_s) for recorded in times.values()):
        raise SpecError(f"{path}: no configuration in it has a time")
    parameters = tuple(Parameter(name=name, settings=settings[name]) for name in names)
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return RecordedSpace(space=TuningSpace(name=name, parameters=parameters, listed=tuple(times)), times=times)


def _t4_row(row: Mapping[str, Any], unit_s: float) -> tuple[dict[str, Setting], RecordedTimes]:
    if row.get("invalidity", "correct") != "correct" or not row.get("correctness", 1):
        return dict(row["configuration"]), RecordedTimes(time_s=inf, samples_s=(), note=str(row.get("invalidity", "")))
    stated = [one["value"] for one in row["measurements"] if one["name"] == _OBJECTIVE]
    return dict(row["configuration"]), _recorded(stated[0], row["times"].get("runtimes") or stated, unit_s)


def _recorded(time: Any, samples: Iterable[Any], unit_s: float) -> RecordedTimes:
    """Return times in seconds; caches of kernel_tuner state a failure in place of the time."""
    if not isinstance(time, int | float):
        return RecordedTimes(time_s=inf, samples_s=(), note=str(time))
    samples_s = tuple(float(one) * unit_s for one in samples)
    if not 0 < time < inf or not all(0 < one < inf for one in samples_s):
        return RecordedTimes(time_s=inf, samples_s=(), note=f"its time {time!r} is no time")
    return RecordedTimes(time_s=time * unit_s, samples_s=samples_s)


def _parameters(rows: Iterable[Mapping[str, Setting]]) -> tuple[list[str], dict[str, tuple[Setting, ...]]]:
    """Return the parameters that take several values, and those values in order."""
    values: dict[str, dict[Setting, None]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, {})[value] = None
    # Numbers in their order, so that neighbours behave alike; texts as they came.
    varied = {
        name: tuple(seen if any(isinstance(value, str) for value in seen) else sorted(seen, key=float))
        for name, seen in values.items()
        if len(seen) > 1
    }
    return list(varied), varied
