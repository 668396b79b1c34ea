"""OpenMetrics text, which Prometheus reads: a gauge for each metric, with labels for case, device and commit."""

import re
from collections.abc import Sequence

from nearpeak.core.history.stored_run import Metric, RunRecord, SampleSet
from nearpeak.exchange.run_exports import RunExport, median_and_ends

_UNITS = {"s": "seconds", "B": "bytes", "J": "joules", "1/s": "per_second", "B/s": "bytes_per_second", "1": "ratio",
          "W": "watts", "Hz": "hertz"}  # fmt: skip
"""Word for a unit that a metric's name ends in. Source: OpenMetrics 1.0, units and base units."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _text(records: Sequence[RunRecord]) -> str:
    """Return the file: medians, and where there are several samples the ends of their 95 % intervals as `stat`."""
    metrics: dict[str, Metric] = {}
    lines: dict[str, dict[str, str]] = {}
    for record in records:
        for sample_set in record.samples:
            if sample_set.values:
                unit = _UNITS.get(sample_set.metric.unit, "")
                word = re.sub(r"[^a-zA-Z0-9_]+", "_", sample_set.metric.name).strip("_")
                name = f"nearpeak_{word}" + (f"_{unit}" if unit and not word.endswith(unit) else "")
                metrics.setdefault(name, sample_set.metric)
                lines.setdefault(name, {}).update(_samples(name, record, sample_set))
    text = []
    for name, metric in sorted(metrics.items()):
        text.append(f"# TYPE {name} gauge\n")
        text += [f"# UNIT {name} {_UNITS[metric.unit]}\n"] if name.endswith(_UNITS.get(metric.unit, " ")) else []
        better = "lower" if metric.direction == "lower" else "higher"
        text.append(f"# HELP {name} {metric.name.translate(_ESCAPES)} in {metric.unit}; {better} is better.\n")
        text += [f"{series} {value}\n" for series, value in lines[name].items()]
    return "".join([*text, "# EOF\n"])


def _samples(name: str, record: RunRecord, sample_set: SampleSet) -> dict[str, str]:
    """Return series of one set of samples with their values; a later run of a series replaces an earlier one."""
    labels = {
        "case": sample_set.label, "workload": sample_set.workload, "device": record.device.name,
        "testbed": sample_set.testbed.name, "branch": record.branch,
        "commit": record.revision.sha if record.revision else "", "launch": str(sample_set.launch),
        **{f"policy_{_word(key)}": str(value) for key, value in sorted(sample_set.testbed.policy.items())},
    }  # fmt: skip
    median, low, high = median_and_ends(sample_set.values, sample_set.metric.unit)
    ends = {"low": low, "high": high} if len(sample_set.values) > 1 else {}
    stamp = f" {record.started_ns / 1e9:.3f}" if record.started_ns else ""
    return {
        f"{name}{{{_labels(labels | {'stat': stat})}}}": f"{value!r}{stamp}"
        for stat, value in {"median": median, **ends}.items()
    }


def _word(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]+", "_", text)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items() if value)


EXPORT = RunExport(name="openmetrics", title="OpenMetrics text, for Prometheus", text_of=_text)
