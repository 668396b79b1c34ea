"""Bencher Metric Format (BMF): `{benchmark: {measure: {value, lower_value, upper_value}}}` as JSON."""

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from nearpeak.core.history.stored_run import TIME, Metric, RunRecord, SampleSet
from nearpeak.errors import SpecError
from nearpeak.exchange.run_exports import RunExport, median_and_ends

RECORD = "bencher"
"""Kind of the record that keeps the figures of an imported file as they were."""
MOST_NAME, MOST_MEASURE = 1024, 64
"""Characters of names of benchmarks and measures. Source: bencher.dev, reference of the Bencher Metric Format."""
_MEASURES = {
    "latency": (TIME, 1e-9),
    "throughput": (Metric(name="throughput", unit="1/s", direction="higher", kind="throughput"), 1.0),
    "build-time": (Metric(name="build_time", unit="s", kind="compile"), 1.0),
    "file-size": (Metric(name="file_size", unit="B", kind="memory"), 1.0),
}
"""Metric and factor to its unit by the measures that Bencher defines: latency in nanoseconds, build time in seconds."""
_OWN = "bencher "


def measure_of(measure: str) -> tuple[Metric, float]:
    """Return the metric of a measure and the factor to its unit; one that Bencher does not define has no unit.

    >>> measure_of("latency")[0].name, measure_of("accuracy")[0].name
    ('time', 'bencher accuracy')
    """
    if measure in _MEASURES:
        return _MEASURES[measure]
    return Metric(name=f"{_OWN}{measure}", unit="1", scale="linear", kind="other"), 1.0


def _text(records: Sequence[RunRecord]) -> str:
    """Return the file; failed cases have no value and are left out, figures of an imported file are as they were."""
    launches: dict[str, dict[str, list[dict[str, float]]]] = {}
    names = _names([sample_set for record in records for sample_set in record.samples])
    seen: dict[tuple[str, str], int] = {}
    taken: set[tuple[str, str, int]] = set()
    for place, record in enumerate(records):
        for sample_set in record.samples:
            name = names[_identity(sample_set)]
            for measure, figures in (_figures(sample_set) if sample_set.values else {}).items():
                if seen.setdefault((name, measure), place) != place:
                    raise SpecError(f"bencher: {sample_set.label}: {measure} stands in two runs; export one of them")
                if (name, measure, sample_set.launch) in taken:
                    raise SpecError(
                        f"bencher: {sample_set.label}: {measure} of launch {sample_set.launch} stands twice in one "
                        "run; the format has one of a name"
                    )
                taken.add((name, measure, sample_set.launch))
                launches.setdefault(name, {}).setdefault(measure, []).append(figures)
    document = {
        name: {measure: _joined(figures) for measure, figures in measures.items()}
        for name, measures in launches.items()
    }
    return json.dumps(document, indent=2) + "\n"


def _joined(launches: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of the values of several launches, with an interval that holds those of all.

    >>> _joined([{"value": 3.0}, {"value": 2.0, "lower_value": 1.0, "upper_value": 4.0}, {"value": 9.0}])
    {'value': 3.0, 'lower_value': 1.0, 'upper_value': 9.0}
    """
    if len(launches) == 1:
        return launches[0]
    return {
        "value": median(figures["value"] for figures in launches),
        "lower_value": min(figures.get("lower_value", figures["value"]) for figures in launches),
        "upper_value": max(figures.get("upper_value", figures["value"]) for figures in launches),
    }


def _figures(sample_set: SampleSet) -> dict[str, dict[str, float]]:
    """Return measures with value and, of several samples, the median's 95 % interval."""
    if RECORD in sample_set.records:
        figures_as_imported: dict[str, dict[str, float]] = json.loads(sample_set.records[RECORD])
        return figures_as_imported
    metric = sample_set.metric
    known = {entry.name: (measure, factor) for measure, (entry, factor) in _MEASURES.items()}
    measure, factor = known.get(metric.name, (metric.name.removeprefix(_OWN).replace("_", "-"), 1.0))
    if len(measure) > MOST_MEASURE:
        raise SpecError(
            f"bencher: measure {measure[:40]!r}… has {len(measure)} characters; the format takes {MOST_MEASURE}"
        )
    value, low, high = (float(f"{figure / factor:.15g}") for figure in median_and_ends(sample_set.values, metric.unit))
    ends = {"lower_value": low, "upper_value": high} if len(sample_set.values) > 1 else {}
    return {measure: {"value": value, **ends}}


def _identity(sample_set: SampleSet) -> tuple[Any, ...]:
    return (sample_set.case, sample_set.testbed.name, *sorted(sample_set.testbed.policy.items()))


def _names(samples: Sequence[SampleSet]) -> dict[tuple[Any, ...], str]:
    """Return a name for each case on its testbed: its label, with the testbed where several have one label."""
    labels: dict[str, set[tuple[Any, ...]]] = {}
    for sample_set in samples:
        labels.setdefault(sample_set.label, set()).add(_identity(sample_set))
    names = {}
    for sample_set in samples:
        identity = _identity(sample_set)
        is_shared = len(labels[sample_set.label]) > 1
        policy = [f"{name}={value}" for name, value in sorted(sample_set.testbed.policy.items())]
        name = " ".join([sample_set.label, *([sample_set.testbed.name, *policy] if is_shared else [])])
        if len(name) > MOST_NAME:
            raise SpecError(
                f"bencher: the name of {name[:40]!r}… has {len(name)} characters; the format takes {MOST_NAME}"
            )
        names[identity] = name
    return names


EXPORT = RunExport(name="bencher", title="Bencher Metric Format, JSON", text_of=_text)
