"""Request logs of serving benchmarks as flat columns, and the latencies that they hold."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.canonical_json import parsed_once
from nearpeak.base.input_files import check_file, reading, text_of_file
from nearpeak.errors import SpecError
from nearpeak.frontends.files.case_tables import read_columns
from nearpeak.systems.serving.request_columns import Floats, Ints

LATENCIES: Mapping[str, Mapping[str, float]] = {
    "ttft": {"ttft_s": 1.0, "ttft_ms": 1e-3, "first_token_latency": 1.0},
    "tpot": {"tpot_s": 1.0, "tpot_ms": 1e-3},
    "latency": {"latency_s": 1.0, "latency_ms": 1e-3, "e2e_s": 1.0, "e2e_ms": 1e-3, "e2el_ms": 1e-3},
}
"""Columns of measured latencies, and their seconds."""
MOMENTS: Mapping[str, tuple[str, ...]] = {
    "ttft": ("first_token_s", "first_token_ts", "first_token_time"),
    "latency": ("last_token_s", "last_token_ts", "last_token_time", "finished_time"),
}
"""Columns of the moments of the first and last token, in seconds on one clock. vLLM's RequestStateStats have them on
another clock than its `arrival_time`, and `first_token_latency` beside them (vllm/v1/metrics/stats.py)."""
_UNITS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_AIPERF = {"ttft_s": "time_to_first_token", "latency_s": "request_latency"}
"""Metrics of AIPerf's requests. Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md."""


def log_columns(path: Path) -> dict[str, Any]:
    """Return the columns of a table of requests, or of a benchmark's file with single requests.

    Of vLLM (`vllm bench serve --save-detailed`) and SGLang (`bench_serving --output-details`) these are lists in one
    object, `input_lens`, `output_lens`, `ttfts`, `itls` and `start_times`; of AIPerf the lines of profile_export.jsonl.
    Requests that failed or were cancelled and those of a warm-up are left out; the others are in order of arrival.

    Raises:
        SpecError: the file is none of these, holds several runs, or states no arrivals.
    """
    if path.suffix.lower() == ".json":
        check_file(path, f"requests {path}")
        with reading(f"requests {path}", "requests"):
            record = parsed_once(text_of_file(path, f"requests {path}"))
        if not isinstance(record, dict) or "input_lens" not in record:
            raise SpecError(
                f"requests {path}: is no result with single requests (input_lens, …); run the benchmark with "
                "--save-detailed, or give a table (.csv, .jsonl, .parquet)"
            )
        return _detailed(record, path)
    columns = read_columns(path)
    if "input_lens" in columns:
        if len(columns["input_lens"]) != 1:
            raise SpecError(f"requests {path}: holds {len(columns['input_lens'])} runs; give a file of one")
        return _detailed({name: column[0] for name, column in columns.items()}, path)
    if "metadata" in columns and "metrics" in columns:
        return _by_arrival(_aiperf_rows(columns, path), path)
    return columns


def _detailed(record: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the columns of one run of vLLM's or SGLang's benchmark."""
    names = ("start_times", "input_lens", "output_lens", "ttfts", "itls")
    missing = [name for name in names if not isinstance(record.get(name), list)]
    if missing:
        raise SpecError(f"requests {path}: states no {missing[0]}; single requests need {', '.join(names)}")
    if len({len(record[name]) for name in names}) != 1:
        raise SpecError(f"requests {path}: {', '.join(names)} are of unequal length")
    with reading(f"requests {path}", "requests"):
        rows = [
            {
                "arrival_s": float(start), "input_tokens": inputs, "output_tokens": outputs, "ttft_s": float(first),
                "latency_s": float(first) + float(sum(gaps)),
            }
            for start, inputs, outputs, first, gaps in zip(*(record[name] for name in names), strict=True) if outputs
        ]  # fmt: skip
    return _by_arrival(rows, path)


def _aiperf_rows(columns: Mapping[str, Any], path: Path) -> Iterable[dict[str, Any]]:
    """Yield the requests of AIPerf that answered."""
    errors = columns.get("error", [None] * len(columns["metrics"]))
    for number, (about, metrics, error) in enumerate(zip(columns["metadata"], columns["metrics"], errors, strict=True)):
        if error is not None or about.get("was_cancelled") or about.get("benchmark_phase") == "warmup":
            continue
        with reading(f"requests {path}, line {number + 1}", "request of AIPerf"):
            row = {
                "arrival_s": about["request_start_ns"] * 1e-9,
                "input_tokens": metrics["input_sequence_length"]["value"],
                "output_tokens": metrics["output_sequence_length"]["value"],
            }
            for name, metric in _AIPERF.items():
                if metric in metrics:
                    row[name] = metrics[metric]["value"] * _UNITS[metrics[metric]["unit"]]
        yield row


def _by_arrival(rows: Iterable[dict[str, Any]], path: Path) -> dict[str, Any]:
    ordered: Sequence[dict[str, Any]] = sorted(rows, key=lambda row: row["arrival_s"])
    if not ordered:
        raise SpecError(f"requests {path}: no request has output")
    return {
        name: [row.get(name, np.nan) for row in ordered]
        for name in dict.fromkeys(key for row in ordered for key in row)
    }


def measured_latencies(
    columns: Mapping[str, Any], arrival_s: Floats | None, output_count: Ints, path: Path
) -> dict[str, Floats]:
    """Return the time to first token, per further token and of the whole request that a log holds, NaN for none.

    What is missing of the three follows from the other two, as a request's latency is ttft + (tokens − 1) · tpot.

    Args:
        arrival_s: arrivals on the clock of the moments of first and last tokens; none where the file has no such.

    Raises:
        SpecError: a latency is negative, as that of moments on another clock than the arrivals' are.
    """
    latencies: dict[str, Floats] = {}
    for metric, names in LATENCIES.items():
        for name in (name for name in names if name in columns):
            latencies[metric] = _numbers(columns[name], name, path) * names[name]
    further = np.maximum(output_count - 1, 1)
    first, last = (
        next((_numbers(columns[name], name, path) for name in MOMENTS[metric] if name in columns), None)
        for metric in ("ttft", "latency")
    )
    if "ttft" in latencies and first is not None and last is not None and not {"tpot", "latency"} & set(latencies):
        latencies["tpot"] = np.where(output_count > 1, (last - first) / further, np.nan)
    elif arrival_s is not None:
        for metric, moments in (("ttft", first), ("latency", last)):
            if moments is not None and metric not in latencies:
                latencies[metric] = moments - arrival_s
    for metric, values in latencies.items():
        early = (values < 0) & (output_count > 0)  # requests that failed have no moments
        if early.any():
            row = int(early.argmax())
            raise SpecError(
                f"requests {path}: row {row + 1} has a {metric} of {values[row]:.3g} s; moments must be on the clock "
                "of the arrivals"
            )
    if "latency" not in latencies and {"ttft", "tpot"} <= set(latencies):
        latencies["latency"] = latencies["ttft"] + np.where(output_count > 1, latencies["tpot"] * further, 0.0)
    if "tpot" not in latencies and {"ttft", "latency"} <= set(latencies):
        latencies["tpot"] = np.where(output_count > 1, (latencies["latency"] - latencies["ttft"]) / further, np.nan)
    return latencies


def _numbers(column: Any, name: str, path: Path) -> Floats:
    try:
        values: Floats = np.array([np.nan if cell in ("", None) else cell for cell in column], np.float64)
    except (TypeError, ValueError):
        raise SpecError(f"requests {path}: column {name!r} holds something else than numbers") from None
    return values
