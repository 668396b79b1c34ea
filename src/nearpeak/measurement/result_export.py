"""Export of results to Parquet, and to JSON in the format of pytest-benchmark."""

import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearpeak.base.folders import whole_file
from nearpeak.base.table_engine import table_engine
from nearpeak.core.runs.measurement import Measurement
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.exchange.measurement_lines import measurement_record
from nearpeak.exchange.telemetry_lines import energy_by_domain
from nearpeak.ops import label_of


def write_parquet(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write one row per measurement, samples as lists; case, method and environment as JSON text.

    Raises:
        MissingExtraError: duckdb is absent.
        SpecError: there is nothing to write.
    """
    check_parquet(path)
    if not measurements:
        raise SpecError(f"{path}: there are no results to write")
    names = tuple(_flat(measurements[0]))
    kinds = ", ".join(f'"{name}" {_KINDS.get(name, "VARCHAR")}' for name in names)
    with table_engine() as connection:
        connection.execute(f"CREATE TABLE results ({kinds})")
        rows = [tuple(_flat(measurement).values()) for measurement in measurements]
        connection.executemany(f"INSERT INTO results VALUES ({', '.join('?' * len(names))})", rows)
        with whole_file(path) as part:
            connection.execute(f"COPY results TO '{str(part).replace(chr(39), chr(39) * 2)}' (FORMAT PARQUET)")


def check_parquet(path: Path) -> None:
    """Refuse to write Parquet where its package is absent.

    Raises:
        MissingExtraError: duckdb is absent.
    """
    try:
        import duckdb  # noqa: F401  # whether it is there is the question
    except ImportError:
        raise MissingExtraError(f"{path}: Parquet needs duckdb; install nearpeak[tables]") from None


_LISTS = ("samples_s", "cpu_samples_s", "host_samples_s", "warmup_s", "clock_probes_s")
_KINDS = {"call_count": "BIGINT", "timer_s": "DOUBLE", "median_s": "DOUBLE", **dict.fromkeys(_LISTS, "DOUBLE[]")}


def _flat(measurement: Measurement) -> dict[str, Any]:
    record = measurement_record(measurement, "")
    record.pop("key")
    record |= {
        "op": measurement.case.op, "label": label_of(measurement.case),
        "median_s": measurement.estimate().centre_s if measurement.has_times else None,
        "environment": measurement.environment.record() if measurement.environment else None,
        "energy_j": energy_by_domain(measurement.telemetry),
    }  # fmt: skip
    return {
        name: json.dumps(value)
        if isinstance(value, dict) or (isinstance(value, list) and name not in _LISTS)
        else value
        for name, value in record.items()
    }


def write_pytest_benchmark(path: Path, measurements: Iterable[Measurement]) -> None:
    """Write the JSON that pytest-benchmark writes with `--benchmark-json`; cases without samples are left out."""
    timed = [measurement for measurement in measurements if measurement.has_times]
    environment = next((measurement.environment for measurement in timed if measurement.environment), None)
    document = {
        "machine_info": {
            "node": "", "machine": environment.system if environment else "",
            "python_version": environment.python if environment else "",
            "cpu": {"brand_raw": environment.device if environment else ""},
        },
        "commit_info": {}, "benchmarks": [_benchmark(measurement) for measurement in timed],
        "datetime": datetime.now(tz=UTC).isoformat(), "version": "5.1.0",
    }  # fmt: skip
    with whole_file(path) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _benchmark(measurement: Measurement) -> dict[str, Any]:
    case, method = measurement.case, measurement.method
    return {
        "group": case.op, "name": label_of(case), "fullname": f"{measurement.runner}::{label_of(case)}",
        "params": {name: value for name, value in case.record().items() if name != "op"}, "param": None,
        "extra_info": {"case_digest": case.digest, "runner": measurement.runner, "target": measurement.target,
                       "outcome": measurement.outcome.value},
        "options": {"disable_gc": True, "timer": method.timer if method else "", "warmup": True},
        "stats": _stats(measurement),
    }  # fmt: skip


def _stats(measurement: Measurement) -> dict[str, Any]:
    """Return the statistics under the names that pytest-benchmark's own tables look up."""
    times, estimate = sorted(measurement.samples_s), measurement.estimate()
    low, high = estimate.quartiles_s
    mean, count = statistics.fmean(times), len(times)
    spread = statistics.stdev(times) if count > 1 else 0.0
    fence = 1.5 * (high - low)  # Tukey's: what lies further from the quartiles is an outlier
    inside = [time_s for time_s in times if low - fence <= time_s <= high + fence]
    beyond = {"stddev": sum(abs(time_s - mean) > spread for time_s in times), "iqr": count - len(inside)}
    return {
        "min": times[0], "max": times[-1], "mean": mean, "median": estimate.centre_s, "stddev": spread,
        "rounds": count, "iterations": measurement.call_count, "q1": low, "q3": high, "iqr": high - low,
        "ld15iqr": inside[0], "hd15iqr": inside[-1], "stddev_outliers": beyond["stddev"],
        "iqr_outliers": beyond["iqr"], "outliers": f"{beyond['stddev']};{beyond['iqr']}", "ops": 1 / mean,
        "total": sum(times), "data": list(measurement.samples_s),
    }  # fmt: skip
