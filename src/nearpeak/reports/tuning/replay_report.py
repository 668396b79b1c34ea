"""Report of a replayed search: evaluations until near the optimum, beside the exact figure of random search."""

import json
import statistics

from nearpeak.core.tuning.replay import ReplayStudy
from nearpeak.reports.brief_text import whole_percent
from nearpeak.reports.document import Block, Details, Document, Table, Text, columns


def to_json(study: ReplayStudy, random_mean_count: float, random_median_count: int) -> str:
    """Return the replay as one JSON line, with the exact figures of random search."""
    oracle = {"random_mean_count": random_mean_count, "random_median_count": random_median_count}
    return json.dumps(study.record() | oracle, allow_nan=False)


def _stop(study: ReplayStudy) -> str:
    """Return what the stop by the expected remaining gain costs and saves, beside as many random draws."""
    worst = max(run.best_ratio for run in study.runs)
    return (
        f"{study.search}, stopped where the rest is expected to gain less than {100 * study.least_gain_ratio:g} %: "
        f"after {statistics.median(run.run_count for run in study.runs):,g} evaluations (median of {len(study.runs)}) "
        f"at {study.speed_ratio:.1%} of the optimum's speed on average, the worst run {worst:.3f} × its time; as many "
        f"random draws reach {study.random_speed_ratio:.1%}, exactly."
    )


def document_of(study: ReplayStudy, random_mean_count: float, random_median_count: int) -> Document:
    """Return the replay as a document; its runs are folded.

    Args:
        random_mean_count: expected evaluations of random search, (N + 1) / (k + 1).
        random_median_count: their median.
    """
    median, runs = study.median_count, len(study.runs)
    counts = sorted(run.found_count or run.run_count + 1 for run in study.runs)
    margin = whole_percent(study.margin_ratio)
    quarters = statistics.quantiles(counts, n=4) if runs > 1 else [median, median, median]
    lead = (
        f"{study.search}: {median:g} evaluations (median of {runs}) until within {margin} of the recorded optimum, "
        f"{median / random_median_count:.2f} × random search, whose exact median is {random_median_count:,}."
    )
    if study.least_gain_ratio:
        lead = _stop(study)
    rows = [
        (study.search, f"{median:g}", f"{quarters[0]:g} to {quarters[2]:g}", f"{study.found_runs} of {runs}"),
        ("random, exact", f"{random_median_count:,}", f"mean {random_mean_count:,.1f}", "all"),
    ]
    heads = columns("search", "#median", "spread", "found")
    ways = (
        f"{study.legal_count:,} recorded configurations, {study.failed_count:,} of them failed, {study.within_count:,} "
        f"within {margin} of the best. A failed one costs an evaluation. Mean of random draws: (N + 1) / (k + 1)."
    )
    device = (
        f"Device time: {whole_percent(study.device_ratio)} of timing the same configurations in full (median of runs)."
    )
    each = Table(
        columns=columns("#seed", "#evaluations", "#tried", "#best_ratio|best / optimum", "#device_s|device time"),
        name="runs",
        rows=[(run.seed, run.found_count, run.run_count, f"{run.best_ratio:.3f}", run.device_s) for run in study.runs],
    )  # fmt: skip
    blocks: list[Block] = [
        Table(columns=heads, rows=rows, name="replay"), Text(device), Text(ways, "muted"),
        Details("Every run (--why)", (each,)),
    ]  # fmt: skip
    return Document(
        title=f"{study.space}: replay of a search", lead=lead, blocks=blocks, kicker="Kernel tuning, replayed"
    )
