"""Importer of Google Benchmark's JSON (`--benchmark_out_format=json`); each repetition is one sample."""

from pathlib import Path

from nearpeak.core.history.stored_run import CPU_TIME, TIME, Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import Found, foreign
from nearpeak.store.foreign_times import epoch_ns, seconds_per
from nearpeak.store.json_tree import Tree

_VERSION = 1
_TESTBED = "google-benchmark"


def _read(tree: Tree, _path: Path) -> tuple[Found, ...]:
    """Return the run of the file; where repetitions were left out of it, the median over them is kept and says so."""
    context = tree.get("context")
    groups: dict[str, list[Tree]] = {}
    for one in tree.get("benchmarks").each():
        name = one.maybe("run_name") or one.get("name")
        groups.setdefault(name.text(), []).append(one)
    samples = [found for name, rows in groups.items() for found in _sets(name, rows)]
    date, host = context.maybe("date"), context.maybe("host_name")
    cpus = context.maybe("num_cpus")
    version = context.maybe("library_version")
    return (
        Found(
            device=Device(name=f"{int(cpus.number())}-core CPU", host=host.text() if host else "") if cpus else None,
            samples=tuple(samples), stack=((_TESTBED, version.text()),) if version else (),
            started_ns=epoch_ns(date) if date else 0, lost=tree.lost(),
        ),
    )  # fmt: skip


def _sets(name: str, rows: list[Tree]) -> list[SampleSet]:
    """Return wall and CPU time of one benchmark."""
    kinds = {id(one): kind.text() if (kind := one.maybe("run_type")) else "iteration" for one in rows}
    runs = [one for one in rows if kinds[id(one)] == "iteration"]
    failed = [one for one in runs if one.has("error_occurred") or one.has("skipped")]
    if failed:
        said = failed[0].maybe("error_message") or failed[0].maybe("skip_message")
        return [_set(name, TIME, (), failed[0], "failed", said.text() if said else "it was skipped")]
    note = ""
    if not runs:
        runs = [one for one in rows if one.has("aggregate_name") and one.get("aggregate_name").text() == "median"]
        note = "summary: the median over its repetitions alone is known"
    if not runs:
        raise SpecError(f"{rows[0].where}: neither repetitions of {name[:60]!r} nor their median are in the file")
    found = []
    for key, metric in (("real_time", TIME), ("cpu_time", CPU_TIME)):
        values = tuple(one.get(key).positive() * seconds_per(one.get("time_unit")) for one in runs)
        found.append(_set(name, metric, values, runs[0], "budget", note))
    return found


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
