"""How far latency and throughput of served models are from published measurements: `… serving_scale [--rows FILE]`."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._figures import Figure
from benchmarks._serving_rows import SHARED, Row, rows_of
from nearpeak.api.serving.serving_plan import serving_time
from nearpeak.core.systems.serving_answer import ServingAnswer
from nearpeak.errors import NearpeakError
from nearpeak.systems.serving.engine_costs import engine_costs

NAMES = {"tpot_s": "tpot", "ttft_s": "ttft", "latency_s": "latency", "output_tokens_per_s": "throughput"}
BARS = {
    ("inferencex", "tpot"): 12.0, ("inferencex", "ttft"): 20.0, ("llm-inference-bench", "latency"): 12.0,
    ("splitwise", "ttft"): 8.0, ("splitwise", "tpot"): 8.0, ("trtllm-docs", "throughput"): 15.0,
}  # fmt: skip
"""Median error asked for by source and measure, in percent."""
FIGURES = (
    "serving_inferencex_tpot_median", "serving_inferencex_ttft_median", "serving_llm_inference_bench_latency_median",
    "serving_splitwise_ttft_median", "serving_splitwise_tpot_median", "serving_trtllm_docs_throughput_median",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One predicted value beside its measurement."""

    row: Row
    """The row."""
    measure: str
    """One of the values of NAMES."""
    ratio: float
    """Predicted over measured."""
    is_covered: bool | None
    """Whether the measurement lies in the 90 % interval; none where the answer has none."""


def scores_of(rows: Iterable[Row | tuple[str, str, str]]) -> tuple[list[Score], Counter[tuple[str, str]]]:
    """Return the scores of all rows, and the refusals by source and reason."""
    scores: list[Score] = []
    refused: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if not isinstance(row, Row):
            refused[row[0], f"{row[1]}: {row[2]}"] += 1
            continue
        try:
            scores += _scores(row, answer_of(row))
        except NearpeakError as error:
            refused[row.source, _reason(error)] += 1
    return scores, refused


def disputed(rows: Iterable[Row | tuple[str, str, str]]) -> set[tuple[str, str]]:
    """Return rows and measures that their source contradicts: the same question measured again, further off than a bar.

    No prediction reaches both of two such values; medians are shown with and without them.
    """
    groups: dict[tuple[object, ...], list[tuple[float, str]]] = defaultdict(list)
    for row in (row for row in rows if isinstance(row, Row)):
        question = (row.source, row.engine, row.gpu, replace(row.shape, name=""), row.layout, row.input_tokens,
                    row.output_tokens, row.concurrency, row.batch)  # fmt: skip
        for name, value in row.measured.items():
            groups[*question, NAMES[name]].append((value, row.id))
    apart = set[tuple[str, str]]()
    for key, values in groups.items():
        bar = next(
            (bar for (source, name), bar in BARS.items() if str(key[0]).startswith(source) and name == key[-1]), 0
        )
        if bar and max(values)[0] > (1 + bar / 100) * min(values)[0]:
            apart |= {(id_, str(key[-1])) for _, id_ in values}
    return apart


def answer_of(row: Row) -> ServingAnswer:
    """Return the answer to the question of a row."""
    costs = engine_costs(row.engine)
    return serving_time(
        row.shape,
        row.target,
        engine=replace(costs, token_budget=row.token_budget or costs.token_budget, rank_wait_count=row.rank_wait_steps),
        layout=row.layout,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        concurrency=row.concurrency,
        batch=row.batch,
        length_spread=row.spread,
        reply_tokens=row.reply_tokens,
        has_trust=False,
    )


def _scores(row: Row, answer: ServingAnswer) -> Iterator[Score]:
    spans = {"tpot_s": answer.tpot_s, "ttft_s": answer.ttft_s}
    values = {"latency_s": answer.latency_s, "output_tokens_per_s": answer.output_tokens_per_s}
    whole = answer.tpot_s
    for name, measured in row.measured.items():
        span = spans.get(name)
        value = span.value if span else values[name]
        low, high = (
            (span.low, span.high) if span else (value * whole.low / whole.value, value * whole.high / whole.value)
        )
        yield Score(row=row, measure=NAMES[name], ratio=value / measured, is_covered=low <= measured <= high)


def _reason(error: NearpeakError) -> str:
    line = str(error).splitlines()[0]
    return f"{type(error).__name__}: {line[:90]}"


def table_lines(scores: list[Score], keys: tuple[str, ...] = ("source", "gpu", "framework")) -> Iterator[str]:
    """Yield a line for each group and measure."""
    groups: dict[tuple[str, ...], list[Score]] = defaultdict(list)
    for score in scores:
        groups[(*(str(getattr(score.row, key)) for key in keys), score.measure)].append(score)
    heads = " ".join(f"{name:>7s}" for name in ("median", "mean", "p90", "bias", "cover"))
    yield f"{' | '.join((*keys, 'measure')):58s} {'n':>5s} {heads}"
    for key, members in sorted(groups.items()):
        errors = np.array([abs(score.ratio - 1) for score in members])
        bias = float(np.median([score.ratio - 1 for score in members]))
        cover = float(np.mean([bool(score.is_covered) for score in members]))
        yield (
            f"{' | '.join(key):58s} {len(members):5d} {100 * np.median(errors):6.1f}% {100 * errors.mean():6.1f}% "
            f"{100 * np.quantile(errors, 0.9):6.1f}% {100 * bias:+6.1f}% {100 * cover:6.0f}%"
        )


def measure(path: Path = SHARED) -> Iterator[Figure]:
    """Score all rows and yield the median error of each source and measure that has a bar."""
    if not path.is_file():
        return
    rows = list(rows_of(path))
    apart = disputed(rows)
    scores, refused = scores_of(rows)
    for line in table_lines(scores):
        print(f"  {line}", flush=True)
    for (source, reason), count in refused.most_common():
        print(f"  refused {count:5d}  {source}: {reason}", flush=True)
    for (source, name), bar in BARS.items():
        errors = [abs(s.ratio - 1) for s in scores if s.row.source.startswith(source) and s.measure == name]
        if errors:
            value = 100 * float(np.median(errors))
            sure = [abs(s.ratio - 1) for s in scores if s.row.source.startswith(source) and s.measure == name
                    and (s.row.id, name) not in apart]  # fmt: skip
            rest = f"{100 * float(np.median(sure)):.1f} % of the {len(sure)}" if sure else "none of those"
            print(
                f"  {source} {name}: {value:.1f} % of {len(errors)}; {rest} that no second value disputes", flush=True
            )
            yield Figure(name=f"serving_{source.replace('-', '_')}_{name}_median", value=value, unit="%",
                         bar=f"<= {bar:g}%", passed=value <= bar)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=SHARED)
    for figure in measure(parser.parse_args().rows):
        print(f"{figure.name}: {figure.value:.1f} {figure.unit} (bar {figure.bar})")
