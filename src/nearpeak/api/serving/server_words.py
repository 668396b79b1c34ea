"""Parser of the text options of an inference server's plan: sensor streams, and times of batches."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearpeak.errors import SpecError, shown
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes
from nearpeak.systems.serving.inference_server.model_config import MOST_BATCH
from nearpeak.units import parse

MOST_S = 3600.0
"""Longest time of a batch that is read."""
_BATCH = re.compile(r"(?:([\w.-]+):)?(\d{1,7})=(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one sensor or client."""

    name: str
    """Name."""
    model: str
    """Model that it asks; empty for the first."""
    rate_per_s: float
    """Requests per second, at equal gaps."""
    deadline_s: float | None
    """Latency beyond which an answer is late."""


def stream_of(text: str) -> Stream:
    """Return the stream that words such as `camera=30/s:40ms` or `lidar@detector=10/s` state.

    >>> stream_of("lidar@detector=10/s:50ms").deadline_s
    0.05
    """
    match = re.fullmatch(r"([\w.-]+)(?:@([\w.-]+))?=(\d+\.?\d*)/s(?::(.+))?", text)
    wrong = SpecError(f"--stream {shown(text)}: is not of the form NAME=RATE/s[:DEADLINE] or NAME@MODEL=…")
    if match is None or not 0 < float(match[3]) < 1e6:
        raise wrong
    try:
        deadline_s = parse(match[4], "s") if match[4] else None
    except SpecError:
        raise wrong from None
    return Stream(name=match[1], model=match[2] or "", rate_per_s=float(match[3]), deadline_s=deadline_s)


def batch_times_of(
    words: Sequence[str], names: Sequence[str], predicted_s: Callable[[str], float]
) -> Mapping[str, BatchTimes]:
    """Return the batch times of each model: `1=2ms,8=5ms`, `detector:1=2ms`, a table with batch and time, or steps.

    Args:
        names: models; words without a name are of the first.
        predicted_s: time of a captured step by its file, which stands where a time would.

    Raises:
        SpecError: a word is none of these, or a model has no times.
    """
    tables: dict[str, dict[int, float]] = {}
    for text in words:
        name, _, rest = text.rpartition(":") if text.endswith((".csv", ".parquet")) else ("", "", text)
        if rest.endswith((".csv", ".parquet")):
            tables.setdefault(name or names[0], {}).update(_table(Path(rest)))
            continue
        model = names[0]
        for word in text.split(","):
            match = _BATCH.fullmatch(word.strip())
            if match is None or not 1 <= int(match[2]) <= MOST_BATCH:
                raise SpecError(
                    f"--times {shown(word)}: is not of the form [MODEL:]BATCH=TIME, e.g. 8=3.1ms, with batches of 1 to "
                    f"{MOST_BATCH:,}, or a .csv"
                )
            model = match[1] or model
            tables.setdefault(model, {})[int(match[2])] = _seconds(match[3], word, predicted_s)
    unknown = [name for name in tables if name not in names]
    if unknown:
        raise SpecError(f"--times: names the model {shown(unknown[0])}; the configurations are of {', '.join(names)}")
    return {
        name: BatchTimes(batch_count=tuple(sorted(times)), seconds_s=tuple(times[size] for size in sorted(times)))
        for name, times in tables.items()
    }


def _seconds(text: str, word: str, predicted_s: Callable[[str], float]) -> float:
    if text.endswith(".json"):
        return predicted_s(text)
    try:
        seconds = parse(text, "s")
    except SpecError:
        raise SpecError(f"--times {shown(word)}: {shown(text)} is neither a time nor a captured step (.json)") from None
    if not 0 < seconds <= MOST_S:
        raise SpecError(f"--times {shown(word)}: must be above 0 and at most {MOST_S:,.0f} s")
    return seconds


def _table(path: Path) -> dict[int, float]:
    """Return times by batch of a table: columns batch, and time_s, time_ms or time_us."""
    from nearpeak.frontends.files.case_tables import read_columns

    columns, units = read_columns(path), {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}
    times = [name for name in units if name in columns]
    if "batch" not in columns or not times:
        raise SpecError(f"--times {path}: needs the columns batch and one of {', '.join(units)}")
    try:
        pairs = [(int(size), float(value) * units[times[0]])
                 for size, value in zip(columns["batch"], columns[times[0]], strict=True)]  # fmt: skip
    except (TypeError, ValueError, OverflowError):
        raise SpecError(f"--times {path}: batch and {times[0]} must be numbers in every row") from None
    if any(not 1 <= size <= MOST_BATCH or not 0 < value <= MOST_S for size, value in pairs):
        raise SpecError(
            f"--times {path}: batches must be 1 to {MOST_BATCH:,} and times above 0, at most {MOST_S:,.0f} s"
        )
    return dict(pairs)
