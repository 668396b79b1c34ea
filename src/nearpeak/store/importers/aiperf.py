"""Importer of AIPerf and GenAI-Perf: summaries (`profile_export_*.json`) and requests (`profile_export.jsonl`)."""

import re
from collections import defaultdict
from pathlib import Path

from nearpeak.core.history.stored_run import Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import SECONDS, ForeignRun, Rows, epoch_ns, foreign
from nearpeak.store.json_tree import Tree, parsed_lines
from nearpeak.store.serving_metrics import LATENCIES, RATES, latency, rate

_VERSION = 1
_UNITS = SECONDS | {"sec": 1.0, "seconds": 1.0}
_PER_SECOND = re.compile(r"/\s*s(ec(onds?)?)?\b")
_STATISTICS = {"p50": "", "avg": "mean", "p90": "p90", "p95": "p95", "p99": "p99"}
_MODEL = "unnamed model"
_SETTINGS = ("concurrency", "request_rate", "request_count")


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file: of a summary its statistics, of requests each one's latencies as samples."""
    lines = tree.each()
    rows = Rows(tree)
    if lines and lines[0].has("metadata"):
        samples, device, started_ns = _requests(lines, rows), None, 0
    elif len(lines) == 1:
        samples, device = _summary(lines[0], rows), _device(lines[0])
        begin = lines[0].maybe("start_time")
        started_ns = epoch_ns(begin) if begin else 0
    else:
        raise SpecError(f"{tree.where}: is neither a summary nor lines of requests")
    return (
        ForeignRun(
            samples=tuple(samples), device=device, started_ns=started_ns, lost=(*rows.lost(samples), *tree.lost())
        ),
    )


def _requests(lines: list[Tree], rows: Rows) -> list[SampleSet]:
    """Return a sample for each request that answered."""
    values: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        with rows.guarded():
            line.get("metadata").skip()
            if line.has("error"):
                line.get("error").skip()
                raise SpecError(f"{line.where}: is a request that failed")
            for name, metric in line.get("metrics").entries():
                if name in LATENCIES and metric.has("value"):
                    value = metric.get("value")
                    parts = value.each() if isinstance(value.raw, list) else [value]
                    factor = _factor(metric)
                    values[name] += [part.positive() * factor for part in parts]
    return [_set(_MODEL, {}, latency(name), tuple(numbers), "") for name, numbers in values.items()]


def _summary(tree: Tree, rows: Rows) -> list[SampleSet]:
    """Return the statistics of every metric that is known; counts and sizes are none."""
    config = tree.maybe("input_config")
    model, settings = _config(config) if config else (_MODEL, {})
    samples = []
    for name, metric in tree.entries():
        with rows.guarded():
            if name in RATES and metric.has("avg") and metric.get("avg").number() > 0:
                unit = metric.get("unit")
                if not _PER_SECOND.search(unit.text()):
                    raise SpecError(f"{unit.where}: {unit.text()[:40]!r} is no rate per second")
                samples.append(
                    _set(model, settings, rate(name), (metric.get("avg").number(),), "one value for the run")
                )
            elif name in LATENCIES and metric.has("unit"):
                factor = _factor(metric)
                samples += [
                    _set(model, settings, latency(name, statistic), (metric.get(key).positive() * factor,),
                         f"summary: {key} alone is known")
                    for key, statistic in _STATISTICS.items()
                    if metric.has(key)
                ]  # fmt: skip
    return samples


def _factor(metric: Tree) -> float:
    unit = metric.get("unit")
    if unit.text() not in _UNITS:
        raise SpecError(f"{unit.where}: {unit.text()[:40]!r} is no unit of time; there are {', '.join(_UNITS)}")
    return _UNITS[unit.text()]


def _config(config: Tree) -> tuple[str, dict[str, str | int | float | bool]]:
    """Return model and load out of the options, which differ from version to version."""
    endpoint, loads = config.maybe("endpoint") or config, config.maybe("loadgen") or config.maybe("perf_analyzer")
    names = endpoint.maybe("model_names") or config.maybe("model_names")
    model = ", ".join(str(name.plain()) for name in names.each()) if names and isinstance(names.raw, list) else ""
    settings = {name: value.plain() for name in _SETTINGS if loads and (value := loads.maybe(name)) is not None}
    return model or _MODEL, settings


def _device(tree: Tree) -> Device | None:
    """Return the GPUs of the telemetry, where it was recorded; they must be of one model."""
    data = tree.maybe("telemetry_data")
    names: list[str] = []
    for _, endpoint in data.get("endpoints").entries() if data and data.has("endpoints") else ():
        names += [gpu.get("gpu_name").text() for _, gpu in endpoint.get("gpus").entries()]
    models = set(names)
    if len(models) != 1:
        return None
    return Device(name=f"{len(names)}x {names[0]}" if len(names) > 1 else names[0])


def _set(
    model: str, settings: dict[str, str | int | float | bool], metric: Metric, values: tuple[float, ...], note: str
) -> SampleSet:
    label = " ".join([model, *(f"{name}={value}" for name, value in settings.items())])
    return SampleSet(
        case=f"aiperf:{label}", label=label, metric=metric, testbed=Testbed(name="aiperf"), values=values,
        parameters=settings, workload=model, note=note,
    )  # fmt: skip


IMPORTER = foreign(
    "aiperf", "AIPerf and GenAI-Perf, summary JSON and requests JSONL", _VERSION, _read,
    marks=('"request_latency"|"time_to_first_token"', '"unit"', '"input_config"|"metadata"|"request_throughput"'),
    tree_of=parsed_lines,
)  # fmt: skip
