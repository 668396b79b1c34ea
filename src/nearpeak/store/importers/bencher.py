"""Importer of Bencher Metric Format (BMF): `{benchmark: {measure: {value, lower_value, upper_value}}}`."""

import re
from pathlib import Path

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.history.stored_run import SampleSet, Testbed
from nearpeak.exchange.run_exports.bencher import RECORD, measure_of
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 1
_VALUES = ("value", "lower_value", "upper_value")


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; values and their ends are kept as they are beside the value in base units."""
    samples, rows = list[SampleSet](), Rows(tree)
    for name, measures in tree.entries():
        with rows.guarded():
            samples += [_set(name, measure, figures) for measure, figures in measures.entries()]
    return (ForeignRun(samples=tuple(samples), lost=(*rows.lost(samples), *tree.lost())),)


def _set(name: str, measure: str, figures: Tree) -> SampleSet:
    metric, factor = measure_of(measure)
    value = figures.get("value").number()
    raw = {key: figures.get(key).raw for key in _VALUES if figures.has(key) and figures.get(key).number() is not None}
    return SampleSet(
        case=f"bencher:{name}", label=name, metric=metric, testbed=Testbed(name="bencher"), values=(value * factor,),
        workload=name, note="summary: one value of the benchmark, its interval beside it"
        if len(raw) > 1 else "summary: one value of the benchmark", records={RECORD: canonical_json({measure: raw})},
    )  # fmt: skip


IMPORTER = foreign(
    "bencher", "Bencher Metric Format", _VERSION, _read, marks=(), begin=re.compile(
        rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"(?:lower_|upper_)?value"\s*:'
    ),
)  # fmt: skip
