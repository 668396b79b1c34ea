"""Importer of MLPerf inference summaries of LoadGen: latency percentiles and throughput, without single queries."""

import re
from pathlib import Path

from nearpeak.core.history.stored_run import TIME, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 1
_TITLE = "MLPerf Results Summary"
_END = re.compile(r"errors? encountered( during test)?\.", re.IGNORECASE)
_LATENCIES = (
    ("50.00 percentile latency (ns)", TIME), ("90.00 percentile latency (ns)", Metric(name="latency_p90", unit="s")),
    ("99.00 percentile latency (ns)", Metric(name="latency_p99", unit="s")),
)  # fmt: skip
_RATES = ("QPS w/o loadgen overhead", "Samples per second", "Completed samples per second")
_THROUGHPUT = Metric(name="throughput", unit="1/s", direction="higher", kind="throughput")


def _document(data: bytes, name: str) -> Tree:
    """Return the lines `key : value` as one document.

    Raises:
        SpecError: the last line, which tells of errors, is missing.
    """
    text = data.decode("utf-8", "replace")
    if not _END.search(text):
        raise SpecError(f"{name}: does not end with the line about errors; was it cut off?")
    rows = (line.partition(":") for line in text.splitlines() if ":" in line)
    return Tree({key.strip(): value.strip() for key, _, value in rows}, name)


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the summary; a run that is not valid has no time."""
    scenario, mode = tree.get("Scenario").text(), tree.get("Mode").text()
    if mode != "PerformanceOnly":
        raise SpecError(f"{tree.where}: Mode {mode[:40]!r} measures no times; give the summary of PerformanceOnly")
    system, result = tree.get("SUT name").text(), tree.get("Result is").text()
    good = result == "VALID"
    label = f"{system} {scenario}"
    common = {"case": f"mlperf_inference:{label}", "label": label, "workload": system,
              "parameters": {"scenario": scenario}, "testbed": Testbed(name="mlperf inference")}  # fmt: skip
    sets = []
    for key, metric in _LATENCIES:
        values = (tree.get(key).positive() * 1e-9,) if good and tree.has(key) else ()
        if values or (metric is TIME and not good):
            sets.append(_set(common, metric, values, f"the result is {result[:40]}" if not good else _note(key)))
    rates = [key for key in _RATES if good and tree.has(key)]
    sets += [_set(common, _THROUGHPUT, (tree.get(key).positive(),), _note(key)) for key in rates[:1]]
    if not sets:
        raise SpecError(f"{tree.where}: {_LATENCIES[0][0]!r} is missing, and so is a throughput")
    return (ForeignRun(samples=tuple(sets), lost=tree.lost()),)


def _set(common: dict[str, object], metric: Metric, values: tuple[float, ...], note: str) -> SampleSet:
    outcome = "budget" if values else "failed"
    return SampleSet(**common, metric=metric, values=values, outcome=outcome, note=note)  # type: ignore[arg-type]


def _note(key: str) -> str:
    return f"summary: {key} alone is known"


IMPORTER = foreign(
    "mlperf_inference", "MLPerf inference, summary of LoadGen", _VERSION, _read, marks=(_TITLE,), tree_of=_document
)
