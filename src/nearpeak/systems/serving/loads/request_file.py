"""Files of requests: tables of arrivals and tokens, and JSON lines of traces and benchmarks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.input_files import border
from nearpeak.errors import SpecError
from nearpeak.systems.serving.loads.benchmark_log import log_columns, measured_latencies
from nearpeak.systems.serving.request_columns import Floats, Ints, Requests

ARRIVALS: Mapping[str, float] = {
    "arrival_s": 1.0, "arrival": 1.0, "arrived_at": 1.0, "arrival_time": 1.0, "start_time": 1.0, "timestamp": 1e-3,
    "arrival_time_ns": 1e-9, "Timestamp": 1.0, "TIMESTAMP": 1.0,
}  # fmt: skip
"""Columns of arrivals and their seconds: nearpeak's tables, CSV, Vidur, vLLM's logs, Mooncake (milliseconds),
LLMServingSim (nanoseconds), BurstGPT, Azure (dates)."""
INPUTS = (
    "input_tokens", "input", "input_length", "input_toks", "prompt_len", "num_prefill_tokens", "Request tokens",
    "ContextTokens", "prompt_tokens",
)  # fmt: skip
"""Columns of the tokens of prompts."""
OUTPUTS = (
    "output_tokens", "output", "output_length", "output_toks", "output_len", "num_decode_tokens", "Response tokens",
    "GeneratedTokens", "completion_tokens",
)  # fmt: skip
"""Columns of generated tokens."""
CLASSES, ADAPTERS = ("priority", "class"), ("adapter", "lora")
"""Columns of priority classes, 0 first, and of LoRA adapters, -1 for none."""
HASHES = "hash_ids"
MOST_LEVELS = 4095
"""Largest number of a class or an adapter."""
MOONCAKE_TOKENS = 512
"""Tokens of a hash block of Mooncake's traces. Source: kvcache-ai/Mooncake, README of the traces."""


@border("requests")
def read_log(
    path: Path, *, rate_per_s: float | None = None, hash_token_count: int = MOONCAKE_TOKENS
) -> tuple[Requests, Mapping[str, Floats]]:
    """Return the requests of a file: arrival, input and output tokens, [hash_ids]; and the latencies that it measured.

    Files are tables (CSV, JSON lines or Parquet) and results of benchmarks with single requests. Times count from the
    first arrival. Rows without output, as BurstGPT has for failed requests, are left out. A log with latencies may be
    in the order in which requests ended; a load is in that of their arrivals.

    Args:
        rate_per_s: rate of arrivals at equal gaps, for a file that has lengths alone.
        hash_token_count: tokens of a hash block, where the file has some.

    Raises:
        SpecError: a column is missing or no number, arrivals go back, or a request has no tokens.
    """
    columns = log_columns(path)
    inputs = _numbers(columns, _name(columns, INPUTS, "input tokens", path), path)
    outputs = _numbers(columns, _name(columns, OUTPUTS, "output tokens", path), path)
    arrivals = _arrivals(columns, len(inputs), rate_per_s, path)
    failed = (outputs == 0) & np.isin("Response tokens", list(columns))
    rows = np.flatnonzero(~failed)
    if not len(rows):
        raise SpecError(f"requests {path}: no request has output")
    is_timed = any(np.asarray(columns[name]).dtype.kind in "iuf" for name in ARRIVALS if name in columns)
    measured = measured_latencies(columns, arrivals if is_timed else None, outputs.astype(np.int64), path)
    if measured:
        rows = rows[np.argsort(arrivals[rows], kind="stable")]
    _check_order(arrivals[rows], rows, path)
    first = arrivals[rows[0]]
    hashes: dict[str, Any] = {}
    if HASHES in columns:
        lists = [np.asarray(columns[HASHES][row], np.int64) for row in rows.tolist()]
        starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        hashes = {"hash_token_count": hash_token_count, "hash_ids": np.concatenate(lists), "hash_starts": starts}
    for field, names in (("classes", CLASSES), ("adapters", ADAPTERS)):
        if found := [name for name in names if name in columns]:
            least = 0 if field == "classes" else -1
            hashes[field] = _levels(_numbers(columns, found[0], path)[rows], found[0], least, path)
    requests = Requests(
        arrival_s=arrivals[rows] - first, input_count=_whole(inputs[rows], rows, "input", path),
        output_count=_whole(outputs[rows], rows, "output", path), **hashes,
    )  # fmt: skip
    return requests, {name: values[rows] for name, values in measured.items()}


def read_requests(path: Path, *, rate_per_s: float | None = None, hash_token_count: int = MOONCAKE_TOKENS) -> Requests:
    """Return the requests of a file, as `read_log` does, without the latencies that it may have measured."""
    return read_log(path, rate_per_s=rate_per_s, hash_token_count=hash_token_count)[0]


def _name(columns: Mapping[str, Any], names: tuple[str, ...], meaning: str, path: Path) -> str:
    for name in names:
        if name in columns:
            return name
    raise SpecError(f"requests {path}: no column of {meaning}; one of {', '.join(names)} is needed")


def _numbers(columns: Mapping[str, Any], name: str, path: Path) -> Floats:
    try:
        values: Floats = np.asarray(columns[name], np.float64)
    except (TypeError, ValueError):
        raise SpecError(f"requests {path}: column {name!r} holds something else than numbers") from None
    if values.ndim != 1 or not np.isfinite(values).all():
        raise SpecError(f"requests {path}: column {name!r} has rows without a number")
    return values


def _whole(values: Floats, rows: Ints, name: str, path: Path) -> Ints:
    """Return the tokens of rows of the file."""
    wrong = (values != np.floor(values)) | (values < 1)
    if wrong.any():
        raise SpecError(
            f"requests {path}: row {rows[wrong][0] + 1} has {values[wrong][0]:g} {name} tokens; a whole number of at "
            "least 1 is right"
        )
    return values.astype(np.int64)


def _levels(values: Floats, name: str, least: int, path: Path) -> Ints:
    """Return whole numbers from `least` to some thousands."""
    wrong = (values != np.floor(values)) | (values < least) | (values > MOST_LEVELS)
    if wrong.any():
        raise SpecError(
            f"requests {path}: {name} {values[wrong][0]:g} is no whole number from {least} to {MOST_LEVELS}"
        )
    return values.astype(np.int64)


def _arrivals(columns: Mapping[str, Any], count: int, rate_per_s: float | None, path: Path) -> Floats:
    """Return arrivals in seconds from wherever the file counts."""
    names = [name for name in ARRIVALS if name in columns]
    if not names:
        if rate_per_s is None or rate_per_s <= 0:
            raise SpecError(f"requests {path}: no column of arrivals ({', '.join(ARRIVALS)}); give a rate above 0")
        return np.arange(count) / rate_per_s
    column = np.asarray(columns[names[0]])
    if column.dtype.kind in "OUSM" and names[0].lower() == "timestamp":
        return _dates(column, path)
    return _numbers(columns, names[0], path) * ARRIVALS[names[0]]


def _dates(column: npt.NDArray[Any], path: Path) -> Floats:
    try:
        dates = np.asarray(column if column.dtype.kind == "M" else column.astype(str), "datetime64[us]")
    except ValueError:
        raise SpecError(
            f"requests {path}: a timestamp is neither a number nor a date such as 2023-11-16 18:15:46.68"
        ) from None
    times: Floats = (dates - dates[0]).astype(np.float64) * 1e-6
    return times


def _check_order(arrivals: Floats, rows: Ints, path: Path) -> None:
    gaps = np.diff(arrivals)
    if (gaps < 0).any():
        row = int((gaps < 0).argmax()) + 1
        raise SpecError(
            f"requests {path}: row {int(rows[row]) + 1} arrives {-gaps[row - 1]:g} s before the one above; arrivals "
            "must not go back"
        )
