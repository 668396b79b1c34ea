"""Host times of a serving engine from a user's own benchmark results: vLLM, SGLang, AIPerf, or a table of latencies."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearpeak.api.serving.serving_plan import serving_time
from nearpeak.core.history.stored_run import Device, RunRecord
from nearpeak.core.systems.engine_fit import EngineFit, FittedPoint, ServedPoint
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError, shown
from nearpeak.systems.serving.engine_costs import EngineCosts, engine_costs, engine_text
from nearpeak.systems.serving.host_fit import fitted_costs

TABLES = (".csv", ".parquet")
"""Ends of names of tables of latencies; other files are results of benchmarks."""
LATENCIES = {"ttft_s": 1.0, "tpot_s": 1.0, "ttft_ms": 1e-3, "tpot_ms": 1e-3}
"""Seconds per unit by the name of a column of a table."""
_SPREAD = 0.02
"""Half width of the spread of output lengths: equal ones would keep all clients in step for ever."""
_REQUESTS = 4
"""Requests of a client that are simulated."""
MOST_CLIENTS, MOST_TOKENS = 10_000, 10_000_000
"""Clients, and tokens of a request, beyond which results are taken for damaged."""
_LINE = re.compile(r"line=(\d+)")


def served_points(path: Path, device: str, *, input_tokens: int = 0, output_tokens: int = 0) -> tuple[ServedPoint, ...]:
    """Return the runs of a file: a table, or results of a benchmark that held its concurrency.

    Args:
        device: name of the device that served.
        input_tokens: tokens of prompts, where the file does not say so.
        output_tokens: generated tokens likewise.

    Raises:
        SpecError: the file states no concurrency, no lengths, or no latency that can be fitted to.
    """
    if path.suffix in TABLES:
        return _table_points(path)
    from nearpeak.store.importers import FileContext, file_bytes, file_digest, runs_of_file

    data = file_bytes(path)
    context = FileContext(name=path.name, digest=file_digest(data), device=Device(name=device))
    runs = runs_of_file(data, context)
    return tuple(_run_point(run, path.name, input_tokens, output_tokens) for run in runs)


def _table_points(path: Path) -> tuple[ServedPoint, ...]:
    """Return the rows of a table with concurrency, input_tokens, output_tokens and a latency."""
    from nearpeak.frontends.files.case_tables import read_columns

    columns = read_columns(path)
    needed = ("concurrency", "input_tokens", "output_tokens")
    missing = [name for name in needed if name not in columns]
    times = [name for name in LATENCIES if name in columns]
    if missing or not times:
        raise SpecError(f"{path.name}: needs the columns {', '.join(needed)} and one of {', '.join(LATENCIES)}")
    points = []
    for row in range(len(columns["concurrency"])):
        where = f"{path.name}, row {row + 1}"
        counts = [_count(columns[name][row], name, where) for name in needed]
        waits: dict[str, float | None] = {"ttft": None, "tpot": None}
        for name in times:
            waits[name.partition("_")[0]] = _time(columns[name][row], name, where)
        points.append(ServedPoint(name=where, concurrency=counts[0], input_tokens=counts[1], output_tokens=counts[2],
                                  ttft_s=waits["ttft"], tpot_s=waits["tpot"]))  # fmt: skip
    return tuple(points)


def _count(value: Any, name: str, where: str) -> int:
    try:
        count = float(value)
    except (TypeError, ValueError):
        count = 0.0
    most = MOST_CLIENTS if name == "concurrency" else MOST_TOKENS
    if not 1 <= count <= most or count != int(count):
        raise SpecError(f"{where}: {name} is {shown(str(value))}; it must be a whole number from 1 to {most:,}")
    return int(count)


def _time(value: Any, name: str, where: str) -> float:
    try:
        seconds = float(value) * LATENCIES[name]
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise SpecError(f"{where}: {name} is {shown(str(value))}; it must be a time above 0")
    return seconds


def _run_point(run: RunRecord, file: str, inputs: int, outputs: int) -> ServedPoint:
    """Return a run of a benchmark; means are taken where there are some, else the centre of what there is."""
    means: dict[str, float] = {}
    settings: dict[str, Any] = {}
    for samples in run.samples:
        settings |= samples.parameters
        if len(samples.values):
            means[samples.metric.name] = sum(samples.values) / len(samples.values)
    line = _LINE.search(run.source.selector)
    where = f"{file}, line {int(line[1]) + 1}" if line else file
    concurrency = settings.get("max_concurrency") or settings.get("concurrency")
    if not concurrency:
        raise SpecError(
            f"{where}: states no concurrency; run the benchmark with one (--max-concurrency), as a fit needs"
        )
    stated = (settings.get("random_input_len") or inputs, settings.get("random_output_len") or outputs)
    if not all(stated):
        raise SpecError(f"{where}: states no tokens of prompts or outputs; give --input and --output")
    ttft, tpot = (means.get(f"{name}_mean", means.get(name)) for name in ("ttft", "tpot"))
    if ttft is None and tpot is None:
        raise SpecError(f"{where}: holds no time to first token and none per output token")
    counts = [_count(value, name, where) for name, value in
              (("concurrency", concurrency), ("input", stated[0]), ("output", stated[1]))]  # fmt: skip
    return ServedPoint(name=where, concurrency=counts[0], input_tokens=counts[1], output_tokens=counts[2],
                       ttft_s=ttft, tpot_s=tpot)  # fmt: skip


def calibrate_engine(
    points: Sequence[ServedPoint], model: str, target: Target, layout: ServingLayout, engine: str
) -> EngineFit:
    """Return the host times of an engine, at most four, that meet the latencies best.

    One concurrency fits the time of a step; several that of a sequence as well; times to first token that of a step
    with prompts; where no graph is captured or there are six and more latencies, the time of a launch.

    Raises:
        SpecError: there are fewer latencies than coefficients, or the model does not fit the device.
    """
    start = replace(engine_costs(engine).beside(target.architecture), host_ratio=(), spread_ratio=())
    measured = [(f"{point.name}: {name}", value) for point in points
                for name, value in (("ttft", point.ttft_s), ("tpot", point.tpot_s)) if value is not None]  # fmt: skip

    def latencies(costs: EngineCosts) -> list[float]:
        seconds = []
        for point in points:
            answer = serving_time(
                model, target, engine=costs, layout=layout, input_tokens=point.input_tokens,
                output_tokens=point.output_tokens, concurrency=point.concurrency, length_spread=_SPREAD,
                requests_per_client=_REQUESTS, has_trust=False,
            )  # fmt: skip
            if point.ttft_s is not None and answer.ttft_s is not None:
                seconds.append(answer.ttft_s.value)
            if point.tpot_s is not None:
                seconds.append(answer.tpot_s.value)
        return seconds

    scalars = _scalars(points, start, len(measured))
    fitted = fitted_costs(start, latencies, [value for _, value in measured], scalars)
    before, after = latencies(start), latencies(fitted)
    files = ", ".join(sorted({point.name.partition(",")[0] for point in points}))
    fitted = replace(
        fitted, name="fitted", is_assumed=False, title=f"{start.title}, host times fitted to own measurements",
        composition_ratio=max(1.05, _ninth(measured, after)),
        source=f"{', '.join(scalars)} fitted on {len(measured)} latencies of {files} ({model} on {target.name}, "
        f"{layout.words}); the rest: {start.source}",
    )  # fmt: skip
    return EngineFit(
        engine=start.name, model=model, target=target.name,
        before_s={name: getattr(start, name) for name in scalars},
        after_s={name: getattr(fitted, name) for name in scalars}, text=engine_text(fitted),
        points=tuple(
            FittedPoint(name=name, measured_s=value, before_s=old, after_s=new)
            for (name, value), old, new in zip(measured, before, after, strict=True)
        ),
    )  # fmt: skip


def _scalars(points: Sequence[ServedPoint], costs: EngineCosts, count: int) -> tuple[str, ...]:
    """Return the coefficients that so many latencies determine."""
    names = ["host_step_s"]
    if len({point.concurrency for point in points}) > 1:
        names.append("host_sequence_s")
    if any(point.ttft_s is not None for point in points):
        names.append("host_prompt_s")
    if not costs.graph_sizes and count >= 6:
        names.append("host_call_s")
    return tuple(names[: max(1, min(count, 4))])


def _ninth(measured: Sequence[tuple[str, float]], predicted: Sequence[float]) -> float:
    """Return the factor within which nine of ten predictions lie."""
    ratios = sorted(max(new / old, old / new) for (_, old), new in zip(measured, predicted, strict=True))
    return ratios[min(len(ratios) - 1, int(0.9 * len(ratios)))]
