"""Importer of asv results: one file per commit and environment in `results/<machine>/`; units in `benchmarks.json`."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from nearpeak.base.input_files import bytes_of_file
from nearpeak.core.history.stored_run import TIME, Device, Metric, Revision, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree, parsed

_VERSION = 2
_FIRST = ("result", "params", "version")
_MEMORY = Metric(name="memory", unit="B", kind="memory")
_PEAK = Metric(name="peak_memory", unit="B", kind="memory")
_BY_NAME = {"time": TIME, "timeraw": TIME, "mem": _MEMORY, "peakmem": _PEAK}
"""Metrics by the word that a benchmark's name starts with, which asv prescribes."""
MOST_CASES = 100_000
"""Combinations of parameters of one benchmark."""


def _read(tree: Tree, path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; benchmarks without a known unit are skipped and listed as lost."""
    results = list(tree.get("results").entries())
    has_columns = tree.has("result_columns") or any(isinstance(row.raw, list) for _, row in results)
    columns = [column.text() for column in tree.get("result_columns").each()] if has_columns else []
    if has_columns and tuple(columns[: len(_FIRST)]) != _FIRST:
        raise SpecError(
            f"{tree.where}: result_columns do not start with {', '.join(_FIRST)}; re-write it with asv 0.4+"
        )
    units, samples, rows = _units(path), list[SampleSet](), Rows(tree)
    for name, row in results:
        with rows.guarded():
            metric = _metric(name, units)
            if metric is None:
                row.skip()
                raise SpecError(f"{row.where}: no unit is known; keep benchmarks.json beside the results")
            samples += _samples(name, _by_column(row, columns) if has_columns else _oldest(row), metric)
    machine = tree.get("params")
    date = tree.maybe("date")
    date_ns = int(date.positive() * 1e6) if date else 0
    return (
        ForeignRun(
            device=_device(machine), samples=tuple(samples), stack=_stack(tree),
            revision=Revision(sha=tree.get("commit_hash").text(), committed_ns=date_ns or None),
            started_ns=date_ns, lost=(*rows.lost(samples), *tree.lost()),
        ),
    )  # fmt: skip


def _by_column(row: Tree, columns: list[str]) -> dict[str, Tree]:
    """Return the cells of a benchmark by column."""
    cells = row.each()
    if len(cells) > len(columns):
        raise SpecError(f"{row.where}: {len(cells)} cells for {len(columns)} columns")
    # Empty columns at the end of a row are left out of the file.
    return {column: cell for column, cell in zip(columns, cells, strict=False) if cell.raw is not None}


def _oldest(row: Tree) -> dict[str, Tree]:
    """Return the cells of a benchmark as asv before 0.4 wrote it: an object of fields, or the result alone."""
    if not isinstance(row.raw, dict):
        return {"result": row.beside([row.raw])}
    cells = dict(row.entries())
    return {key: cells[key] if isinstance(cells[key].raw, list) else cells[key].beside([cells[key].raw])
            for key in ("result", "params", "samples") if row.has(key)}  # fmt: skip


def _samples(name: str, cells: dict[str, Tree], metric: Metric) -> Iterator[SampleSet]:
    """Yield a set for each combination of parameters; one that failed has no samples."""
    for column in ("version", "started_at", "duration"):
        if column in cells:
            cells[column].skip()
    params = [[cell.plain() for cell in axis.each()] for axis in cells["params"].each()] if "params" in cells else []
    count = math.prod(map(len, params))
    results = cells["result"].each() if "result" in cells else []
    raws = cells["samples"].each() if "samples" in cells else []
    if count > MOST_CASES or len(results) not in (0, count):
        place = cells["params" if "params" in cells else "result"].where
        raise SpecError(f"{place}: {count} combinations of parameters, {len(results)} results")
    for index, combination in enumerate(itertools.product(*params)):
        label = f"{name}({', '.join(map(str, combination))})" if combination else name
        centre = results[index] if results else None
        raw = raws[index] if index < len(raws) and raws[index].raw else None
        values: tuple[float, ...] = ()
        if centre is not None and centre.raw is not None and centre.raw == centre.raw:  # asv writes NaN for failures
            is_signed = metric.kind == "other"  # what track_ benchmarks return may be 0 or below
            median = centre.number() if is_signed else centre.positive()
            values = (median,) if raw is None else raw.positives()
        yield SampleSet(
            case=f"asv:{label}", label=label, metric=metric, testbed=Testbed(name="asv"), values=values,
            parameters={f"param{place}": value for place, value in enumerate(combination)}, workload=name,
            outcome="budget" if values else "failed",
            note="" if raw is not None or not values else "summary: the median alone is known",
        )  # fmt: skip


def _units(path: Path) -> dict[str, str]:
    """Return units by benchmark out of `benchmarks.json`, one or two folders up; empty where there is none."""
    for folder in path.resolve().parents[:2]:
        file = folder / "benchmarks.json"
        if file.is_file():
            rows = parsed(bytes_of_file(file), str(file)).entries()
            return {name: row.get("unit").text() for name, row in rows if isinstance(row.raw, dict) and row.has("unit")}
    return {}


def _metric(name: str, units: dict[str, str]) -> Metric | None:
    unit = units.get(name)
    if unit is None:
        return _BY_NAME.get(name.rpartition(".")[2].partition("_")[0])
    known = {"seconds": TIME, "bytes": _MEMORY}
    return known.get(unit) or Metric(name=f"asv {unit}", unit=unit, kind="other")


def _device(machine: Tree) -> Device | None:
    texts = {key: value.text() for key in ("machine", "cpu", "arch") if (value := machine.maybe(key)) is not None}
    name = texts.get("cpu") or texts.get("machine")
    if not name:
        return None
    return Device(name=name, architecture=texts.get("arch", ""), host=texts.get("machine", ""))


def _stack(tree: Tree) -> tuple[tuple[str, str], ...]:
    stack = {}
    if (python := tree.maybe("python")) is not None:
        stack["python"] = python.text()
    if (wanted := tree.maybe("requirements")) is not None:
        stack |= {name: str(version.plain()) for name, version in wanted.entries() if version.raw is not None}
    return tuple(sorted(stack.items()))


IMPORTER = foreign(
    "asv", "asv, results of one commit", _VERSION, _read,
    marks=('"commit_hash"', '"env_name"|"requirements"|"python"', '"results"'),
)  # fmt: skip
