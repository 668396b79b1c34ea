"""Importer of hyperfine's JSON (`--export-json`): a benchmark for each command, a sample for each run of it."""

from pathlib import Path

from nearpeak.core.history.stored_run import CPU_TIME, TIME, Metric, SampleSet, Testbed
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 1
_DERIVED = ("mean", "stddev", "median", "min", "max")
"""Statistics of the times, which follow from them."""
_MEMORY = Metric(name="peak_memory", unit="B", kind="memory")


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; a command that stands several times was launched several times."""
    samples, rows = list[SampleSet](), Rows(tree)
    launches: dict[str, int] = {}
    for row in tree.get("results").each():
        with rows.guarded():
            command = row.get("command").text()
            samples += _sets(row, command, launches.get(command, 0))
            launches[command] = launches.get(command, 0) + 1
    return (ForeignRun(samples=tuple(samples), lost=(*rows.lost(samples), *tree.lost())),)


def _sets(row: Tree, command: str, launch: int) -> list[SampleSet]:
    """Return wall time, CPU time and memory of one command; runs that ended with an error code have no time."""
    codes = [code.plain() for code in row.get("exit_codes").each()] if row.has("exit_codes") else []
    for key in _DERIVED:
        if row.has(key):
            row.get(key).skip()
    times = row.get("times").positives() if row.has("times") else ()
    good_times = tuple(value for place, value in enumerate(times) if place >= len(codes) or codes[place] == 0)
    failed_count = len(times) - len(good_times)
    note = f"{failed_count} of {len(times)} runs ended with an error code and are left out" if failed_count else ""
    if not times:
        good_times, note = (row.get("median").positive(),), "summary: the median alone is known"
    parameters = (
        {name: value.plain() for name, value in row.get("parameters").entries()} if row.has("parameters") else {}
    )
    label = " ".join(command.split()) or "empty command"

    def samples(metric: Metric, values: tuple[float, ...], remark: str) -> SampleSet:
        return SampleSet(
            case=f"hyperfine:{command}", label=label, metric=metric, testbed=Testbed(name="hyperfine"), values=values,
            parameters=parameters, workload=label.partition(" ")[0], launch=launch, note=remark,
            outcome="budget" if values else "failed",
        )  # fmt: skip

    sets = [samples(TIME, good_times, note)]
    if good_times and row.has("user") and row.has("system"):
        cpu_s = row.get("user").number() + row.get("system").number()
        sets += [samples(CPU_TIME, (cpu_s,), "summary: the mean alone is known")] if cpu_s > 0 else []
    if good_times and row.has("memory_usage_byte"):
        sets.append(samples(_MEMORY, row.get("memory_usage_byte").positives(), ""))
    return sets


IMPORTER = foreign(
    "hyperfine", "hyperfine --export-json", _VERSION, _read, marks=('"results"', '"command"', '"mean"', '"stddev"')
)
