"""How often a late rank of a job is named, how near its gain is, and what jobs without one show."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import _planted_ranks as ranks
from benchmarks._figures import Figure
from benchmarks.planted_traces import keep
from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.traces.finding_report import TraceReport

FIGURES = ("planted_ranks_named", "planted_ranks_gain", "planted_ranks_healthy", "planted_ranks_abstained")
SEEDS = range(1000, 1050)
GAIN_RATIO = 0.15


def measure() -> Iterator[Figure]:
    """Yield each figure over all seeds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        named, near, alone = 0, 0, 0
        for seed in SEEDS:
            job = ranks.job(seed, late=True)
            found = [one for one in reported(job, folder).findings if one.id == "comm.straggler"]
            truth_s = (ranks.step_ns(job) - ranks.step_ns(ranks.cured(job))) * 1e-9
            named += bool(found) and found[0].key == f"rank {job.late}"
            near += bool(found) and abs(found[0].gain_s - truth_s) <= GAIN_RATIO * truth_s
            single = analyze_trace(ranks.write(job, folder)[0])
            alone += "comm.straggler" in {one.id for one in single.abstentions}
        count = len(SEEDS)
        yield _share("planted_ranks_named", named / count, ">= 95 %", passed=named / count >= 0.95)
        yield _share("planted_ranks_gain", near / count, ">= 90 % within 15 %", passed=near / count >= 0.9)
        silent = [reported(ranks.job(seed, late=False), folder) for seed in SEEDS]
        said = sum("comm.straggler" in {one.id for one in report.findings} for report in silent) / count
        keep({"comm.straggler": {"trace_count": count, "right_count": named, "other_count": count,
                                 "wrong_count": round(said * count)}})  # fmt: skip
        yield _share("planted_ranks_healthy", said, "<= 2 %", passed=said <= 0.02)
        yield _share("planted_ranks_abstained", alone / count, "100 %", passed=alone == count)


def reported(job: ranks.Job, folder: Path) -> TraceReport:
    """Return what is found in the first rank's trace beside the others."""
    first, *others = ranks.write(job, folder)
    return analyze_trace(first, ranks=others)


def _share(name: str, share: float, bar: str, *, passed: bool) -> Figure:
    return Figure(name=name, value=share * 100, unit="%", bar=bar, passed=passed, seed=SEEDS[0])
