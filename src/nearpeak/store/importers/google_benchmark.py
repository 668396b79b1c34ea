"""Importer of Google Benchmark's JSON (`--benchmark_out_format=json`); each repetition is one sample."""

from pathlib import Path

from nearpeak.core.history.stored_run import CPU_TIME, TIME, Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, epoch_ns, foreign, seconds_per
from nearpeak.store.json_tree import Tree

_VERSION = 1
_TESTBED = "google-benchmark"


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; without repetitions in the file, their median is imported, with a note."""
    context = tree.get("context")
    groups: dict[str, list[Tree]] = {}
    for row in tree.get("benchmarks").each():
        name = row.maybe("run_name") or row.get("name")
        groups.setdefault(name.text(), []).append(row)
    samples = [sample_set for name, rows in groups.items() for sample_set in _sets(name, rows)]
    date, host = context.maybe("date"), context.maybe("host_name")
    cpus = context.maybe("num_cpus")
    version = context.maybe("library_version")
    return (
        ForeignRun(
            device=Device(name=f"{int(cpus.number())}-core CPU", host=host.text() if host else "") if cpus else None,
            samples=tuple(samples), stack=((_TESTBED, version.text()),) if version else (),
            started_ns=epoch_ns(date) if date else 0, lost=tree.lost(),
        ),
    )  # fmt: skip


def _sets(name: str, rows: list[Tree]) -> list[SampleSet]:
    """Return wall and CPU time of one benchmark."""
    kinds = {id(row): kind.text() if (kind := row.maybe("run_type")) else "iteration" for row in rows}
    runs = [row for row in rows if kinds[id(row)] == "iteration"]
    failed = [row for row in runs if row.has("error_occurred") or row.has("skipped")]
    if failed:
        message = failed[0].maybe("error_message") or failed[0].maybe("skip_message")
        return [_set(name, TIME, (), failed[0], "failed", message.text() if message else "it was skipped")]
    note = ""
    if not runs:
        runs = [row for row in rows if row.has("aggregate_name") and row.get("aggregate_name").text() == "median"]
        note = "summary: the median over its repetitions alone is known"
    if not runs:
        raise SpecError(f"{rows[0].where}: neither repetitions of {name[:60]!r} nor their median are in the file")
    sets = []
    for key, metric in (("real_time", TIME), ("cpu_time", CPU_TIME)):
        values = tuple(row.get(key).positive() * seconds_per(row.get("time_unit")) for row in runs)
        sets.append(_set(name, metric, values, runs[0], "budget", note))
    return sets


def _set(name: str, metric: Metric, values: tuple[float, ...], row: Tree, outcome: str, note: str) -> SampleSet:
    threads = row.maybe("threads")
    return SampleSet(
        case=f"{_TESTBED}:{name}", label=name, metric=metric, values=values, workload=name.split("/", maxsplit=1)[0],
        testbed=Testbed(name=_TESTBED, policy={"threads": int(threads.number())} if threads else {}),
        outcome=outcome, note=note,
    )  # fmt: skip


IMPORTER = foreign(
    "google_benchmark",
    "Google Benchmark, JSON",
    _VERSION,
    _read,
    marks=('"context"', '"benchmarks"'),
    never=('"machine_info"', '"devices"'),
)
