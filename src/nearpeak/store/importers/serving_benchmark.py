"""Importer of serving benchmarks: `vllm bench serve --save-result` and SGLang's `bench_serving --output-file`."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from nearpeak.core.history.stored_run import Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, epoch_ns, foreign
from nearpeak.store.json_tree import Tree, parsed_lines
from nearpeak.store.serving_metrics import RATES, latency, rate

_VERSION = 1
_KEY = re.compile(r"(median|mean|p[\d.]+)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_SETTINGS = (
    "request_rate", "max_concurrency", "burstiness", "num_prompts", "dataset_name", "random_input_len",
    "random_output_len", "random_range_ratio", "fixed_output_len", "endpoint_type", "backend",
)  # fmt: skip
"""Fields that say what load was offered: runs that differ in one are not comparable."""
_SAMPLES = {"ttft": "ttfts", "itl": "itls"}
"""Lists of single values in seconds, which `--save-detailed` and `--output-details` add."""
MOST_SAMPLES = 1_000_000
"""Single values of one metric; of more the median is kept."""


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return a run for each line: both tools can append results to one file."""
    rows, runs = Rows(tree), []
    for number, line in enumerate(tree.each()):
        with rows.guarded():
            runs.append((number, tuple(_sets(line)), _started_ns(line)))
    lost = (*rows.lost(runs), *tree.lost())
    return tuple(
        ForeignRun(samples=samples, started_ns=started_ns, lost=lost, selector=f"line={number}" if number else "")
        for number, samples, started_ns in runs
    )


def _started_ns(line: Tree) -> int:
    date = line.maybe("date")
    return epoch_ns(date) if date else 0


def _sets(line: Tree) -> Iterator[SampleSet]:
    """Yield the latencies and rates of one benchmark; one that completed no request has none."""
    settings = {
        name: _whole(value.plain()) for name in _SETTINGS if (value := line.maybe(name)) is not None
    }  # fmt: skip
    server = line.maybe("server_info")
    names = (line.maybe("model_id"), line.maybe("model"), server.maybe("model_path") if server else None)
    model = next((name.text() for name in names if name is not None), "unnamed model")
    shown = [f"{name}={value}" for name, value in settings.items() if name != "backend"]
    label = " ".join([model, *shown])
    requested, completed = line.maybe("num_prompts"), line.get("completed").number()
    missed = int(requested.number() - completed) if requested else 0
    note = f"{missed} of {int(completed) + missed} requests failed" if missed > 0 else ""
    bed = Testbed(name=f"{settings.get('backend', 'unnamed')} serving benchmark")

    def samples(metric: Metric, values: tuple[float, ...], remark: str = "") -> SampleSet:
        return SampleSet(
            case=f"serving:{label}", label=label, metric=metric, testbed=bed, values=values, parameters=settings,
            workload=model, outcome="budget" if values else "failed", note="; ".join(filter(None, (remark, note))),
        )  # fmt: skip

    if not completed:
        yield samples(rate("request_throughput"), (), "no request completed")
        return
    singles = {name: values for name, key in _SAMPLES.items() if (values := _single(line.maybe(key)))}
    yield from (samples(latency(name), values) for name, values in singles.items())
    for key, value in line.entries():
        if key in RATES and value.is_number() and value.number() > 0:
            yield samples(rate(key), (value.number(),), "one value for the run")
        elif (part := _KEY.fullmatch(key)) and value.is_number() and value.number() > 0:  # 0 where nothing was streamed
            statistic = "" if part[1] == "median" else part[1]
            if statistic or part[2] not in singles:
                yield samples(
                    latency(part[2], statistic), (value.number() * 1e-3,), f"summary: the {part[1]} alone is known"
                )


def _single(values: Tree | None) -> tuple[float, ...]:
    """Return single values of all requests, those of requests without a token left out; none of too many."""
    if values is None:
        return ()
    values.skip()
    raw = values.raw if isinstance(values.raw, list) else []
    flat = [item for entry in raw for item in (entry if isinstance(entry, list) else [entry])]
    if len(flat) > MOST_SAMPLES:
        return ()
    if not all(type(item) in (int, float) and math.isfinite(item) for item in flat):
        raise SpecError(f"{values.where}: holds values that are no finite numbers")
    return tuple(float(item) for item in flat if item > 0)


def _whole(value: str | int | float | bool) -> str | int | float | bool:
    """Return a number without a fraction as a whole one: 4.0 and 4 are the same load."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


IMPORTER = foreign(
    "serving_benchmark", "vLLM bench serve and SGLang bench_serving", _VERSION, _read,
    marks=('"completed"', '"request_throughput"', '"mean_ttft_ms"|"median_ttft_ms"|"ttfts"|"mean_e2el_ms"'),
    tree_of=parsed_lines,
)  # fmt: skip
