"""Importer of Google Benchmark's JSON (`--benchmark_out_format=json`); each repetition is one sample."""

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from nearpeak.core.history.stored_run import CPU_TIME, TIME, Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, epoch_ns, foreign, seconds_per
from nearpeak.store.json_tree import Tree

_VERSION = 2
_TESTBED = "google-benchmark"
_FITS = ("BigO", "RMS")
"""Aggregates of `->Complexity()`: coefficients of a fit over the arguments, no times."""
_STATISTICS = ("mean", "median", "stddev", "cv")
_CENTRES = ("median", "mean")
"""Aggregates that stand for repetitions that are not in the file, best first."""
_FIELDS = frozenset({
    "name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time", "cpu_time",
    "time_unit", "family_index", "per_family_instance_index", "aggregate_name", "aggregate_unit", "label",
    "error_occurred", "error_message", "skipped", "skip_message", "big_o", "cpu_coefficient", "real_coefficient", "rms",
})  # fmt: skip
"""Fields of the format itself; every other number of a row is a counter. Source: src/json_reporter.cc."""
_RATES = (
    Metric(name="bytes_per_second", unit="B/s", direction="higher", kind="throughput"),
    Metric(name="items_per_second", unit="1/s", direction="higher", kind="throughput"),
)
"""Counters of which the tool itself says what they are; others have neither unit nor better direction, so that they are
channels of the time, never a verdict."""


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; without repetitions in the file, their median is imported, with a note."""
    context = tree.get("context")
    rows = Rows(tree)
    groups: dict[str, list[tuple[str, Tree]]] = {}
    entries = tree.get("benchmarks").each()
    names = {str(row.raw["name"]) for row in entries if isinstance(row.raw, dict) and "name" in row.raw}
    for row in entries:
        with rows.guarded():
            _check(row)
            name, aggregate = _kind_of(row, names)
            groups.setdefault(name, []).append((aggregate, row))
    samples: list[SampleSet] = []
    for name, group in groups.items():
        with rows.guarded():
            samples += _sets(name, group)
    date, host = context.maybe("date"), context.maybe("host_name")
    cpus = context.maybe("num_cpus")
    version = context.maybe("library_version")
    return (
        ForeignRun(
            device=Device(name=f"{int(cpus.number())}-core CPU", host=host.text() if host else "") if cpus else None,
            samples=tuple(samples), stack=((_TESTBED, version.text()),) if version else (),
            started_ns=epoch_ns(date) if date else 0, lost=(*rows.lost(samples), *tree.lost()),
        ),
    )  # fmt: skip


def _check(row: Tree) -> None:
    """Refuse a row that states no time; files of before 2019 do not call them aggregates."""
    aggregate = row.maybe("aggregate_name")
    if row.has("big_o") or row.has("rms") or (aggregate is not None and aggregate.text() in _FITS):
        row.skip()
        kind = aggregate.text() if aggregate else "BigO" if row.has("big_o") else "RMS"
        raise SpecError(f"{row.where}: {kind} is a fit over the arguments, no time")


def _kind_of(row: Tree, names: Set[str]) -> tuple[str, str]:
    """Return name and aggregate of a row; empty where it is a repetition.

    Args:
        names: names of all rows: before 2019 an aggregate is told by the name of the benchmark before its own.
    """
    name = (row.maybe("run_name") or row.get("name")).text()
    aggregate, kind = row.maybe("aggregate_name"), row.maybe("run_type")
    if kind is not None:
        return name, "" if kind.text() == "iteration" or aggregate is None else aggregate.text()
    base, _, word = name.rpartition("_")
    is_aggregate = word in _STATISTICS and (base in names or {f"{base}_mean", f"{base}_stddev"} <= names)
    return (base, word) if is_aggregate else (name, "")


def _sets(name: str, rows: list[tuple[str, Tree]]) -> list[SampleSet]:
    """Return wall time, CPU time and counters of one benchmark.

    Args:
        rows: its rows, each with its aggregate; empty for a repetition.
    """
    runs = [row for aggregate, row in rows if not aggregate]
    failed = [row for row in runs if row.states("error_occurred") or row.states("skipped")]
    if failed:
        message = failed[0].maybe("error_message") or failed[0].maybe("skip_message")
        return [_set(name, TIME, (), failed[0], "failed", message.text() if message else "it was skipped")]
    note = ""
    if not runs:
        centres = dict(rows)
        centre = next((entry for entry in _CENTRES if entry in centres), "")
        runs = [centres[centre]] if centre else []
        note = f"summary: the {centre} over its repetitions alone is known"
    if not runs:
        raise SpecError(f"{rows[0][1].where}: neither repetitions of {name[:60]!r} nor their median are in the file")
    counters, units = _counters(runs), [seconds_per(row.get("time_unit")) for row in runs]
    values = {TIME: tuple(row.get("real_time").positive() * unit for row, unit in zip(runs, units, strict=True))}
    cpu = tuple(row.get("cpu_time").number() * unit for row, unit in zip(runs, units, strict=True))
    if min(cpu) > 0:  # a benchmark that only waits takes none
        values[CPU_TIME] = cpu
    values |= {metric: counters.pop(metric.name) for metric in _RATES if metric.name in counters}
    sets = [_set(name, metric, row_values, runs[0], "budget", note) for metric, row_values in values.items()]
    return [replace(sets[0], channels=counters), *sets[1:]]


def _counters(runs: list[Tree]) -> dict[str, tuple[float, ...]]:
    """Return the counters that every repetition states, by name."""
    keys = [key for key, value in runs[0].entries() if key not in _FIELDS and value.is_number()]
    common = [key for key in keys if all(row.has(key) and row.get(key).is_number() for row in runs)]
    return {key: tuple(row.get(key).number() for row in runs) for key in common}


def _set(name: str, metric: Metric, values: tuple[float, ...], row: Tree, outcome: str, note: str) -> SampleSet:
    threads = row.maybe("threads")
    label = row.maybe("label")
    return SampleSet(
        case=f"{_TESTBED}:{name}", label=name, metric=metric, values=values, workload=name.split("/", maxsplit=1)[0],
        testbed=Testbed(name=_TESTBED, policy={"threads": int(threads.number())} if threads else {}),
        parameters={"label": label.text()} if label else {}, outcome=outcome, note=note,
    )  # fmt: skip


IMPORTER = foreign(
    "google_benchmark",
    "Google Benchmark, JSON",
    _VERSION,
    _read,
    marks=('"context"', '"benchmarks"'),
    never=('"machine_info"', '"devices"'),
)
