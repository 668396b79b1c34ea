"""Importer of trtexec's JSON: samples per query (`--exportTimes`) and times per layer (`--exportProfile`), in ms."""

from pathlib import Path

from nearpeak.core.history.stored_run import TIME, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 2
_METRICS = (
    ("computeMs", TIME), ("latencyMs", Metric(name="latency", unit="s")), ("h2dMs", Metric(name="h2d_time", unit="s")),
    ("d2hMs", Metric(name="d2h_time", unit="s")),
)  # fmt: skip
"""What a query is timed by; `time` is the device's own."""


def _read(tree: Tree, path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file.

    A profile is another way of measuring than the times of queries: the sum of its layers is longer, so that the two
    are never in one series.
    """
    rows = tree.each()
    if not rows:
        raise SpecError(f"{tree.where}: is an empty list")
    faults = Rows(tree)
    samples = _layers(rows, path, faults) if rows[0].has("count") else _queries(rows, path.stem)
    return (ForeignRun(samples=tuple(samples), lost=(*faults.lost(samples), *tree.lost())),)


def _queries(rows: list[Tree], engine: str) -> list[SampleSet]:
    sets = []
    for key, metric in _METRICS:
        if key != "computeMs" and not all(row.has(key) for row in rows):
            continue
        values = [row.get(key).number() * 1e-3 for row in rows]
        if metric is TIME and min(values) <= 0:
            raise SpecError(f"{rows[values.index(min(values))].where}: computeMs is not above 0")
        if min(values) > 0:  # engines without transfers state 0 for them
            sets.append(_set(engine, metric, values, profiled=False, note=""))
    return sets


def _layers(rows: list[Tree], path: Path, faults: Rows) -> list[SampleSet]:
    count = int(rows[0].get("count").positive())
    engine, sets = path.stem, []
    for index, row in enumerate(rows[1:]):
        with faults.guarded():
            name = row.get("name").text()
            key = "medianMs" if row.has("medianMs") else "averageMs"
            what = "median" if key == "medianMs" else "mean"
            value = row.get(key).number() * 1e-3
            sets.append(
                _set(engine, TIME, [value] if value > 0 else [], profiled=True, layer=name, position=index,
                     note=f"summary: the {what} over {count} runs alone is known" if value > 0 else "took no time")
            )  # fmt: skip
    return sets


def _set(
    engine: str, metric: Metric, values: list[float], *, profiled: bool, note: str, layer: str = "", position: int = 0
) -> SampleSet:
    label = f"{engine} {layer}".strip()
    return SampleSet(
        case=f"trtexec:{engine}:{f'{position}:{layer}' if layer else ''}", label=label, metric=metric,
        testbed=Testbed(name="trtexec", policy={"profiled": profiled}), values=tuple(values),
        parameters={"layer": layer} if layer else {}, workload=engine, outcome="budget" if values else "unsupported",
        note=note,
    )  # fmt: skip


IMPORTER = foreign(
    "trtexec", "trtexec --exportTimes and --exportProfile", _VERSION, _read, marks=('"computeMs"|"averageMs"',)
)
