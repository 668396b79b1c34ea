"""How often the planted cause of a trace is found first, how near its gain is, and what healthy traces show."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import _planted_traces as planted
from benchmarks._figures import Figure
from nearpeak.analyze.findings import report_of
from nearpeak.core.finding_report import TraceReport
from nearpeak.executed.reading import executed_of
from nearpeak.targets import target_of
from nearpeak.trace import read_trace

FIGURES = (
    "planted_traces_first", "planted_traces_worst_cause", "planted_traces_gain", "planted_traces_healthy",
    "planted_traces_abstained", "planted_traces_residual_ns",
)  # fmt: skip
SEEDS = range(1000, 1050)
"""Seeds of the scored traces; others were looked at while the rules were written."""
GAIN_RATIO = 0.15


def measure() -> Iterator[Figure]:
    """Yield each figure over all causes and seeds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        right, near, gained, total, worst, residual = 0, 0, 0, 0, 1.0, 0
        for make, wanted, _ in planted.CAUSES.values():
            hits = 0
            for seed in SEEDS:
                program = make(seed)
                report = reported(program, file)
                first = report.findings[0] if report.findings else None
                hits += first is not None and first.id == wanted
                residual = max(residual, abs(report.shortfall.residual_ns) if report.shortfall else 0)
                truth_s = (planted.step_ns(program) - planted.step_ns(planted.cured(program))) * 1e-9
                if truth_s > 0:
                    gained += 1
                    near += first is not None and abs(first.gain_s - truth_s) <= GAIN_RATIO * truth_s
            right, total, worst = right + hits, total + len(SEEDS), min(worst, hits / len(SEEDS))
        yield _share("planted_traces_first", right / total, ">= 95 %", 0.95)
        yield _share("planted_traces_worst_cause", worst, ">= 90 %", 0.90)
        yield _share("planted_traces_gain", near / gained, ">= 90 % within 15 %", 0.90)
        yield Figure(name="planted_traces_residual_ns", value=residual, unit="ns", bar="<= 1 ns", passed=residual <= 1)
        false = [bool(reported(planted.healthy(seed), file).findings) for seed in range(1000, 1200)]
        share = sum(false) / len(false)
        yield Figure(
            name="planted_traces_healthy", value=share * 100, unit="%", bar="<= 2 %", passed=share <= 0.02, seed=1000
        )
        yield _share("planted_traces_abstained", _abstained(file), "100 %", 1.0)


def reported(program: planted.Program, file: Path, without: tuple[str, ...] = ()) -> TraceReport:
    """Return what is found in a planted trace that went through a file."""
    return report_of(executed_of(read_trace(planted.write(program, file, without)), target_of("h100_sxm")))


def _abstained(file: Path) -> float:
    """Return the share of traces without the evidence in which the rule says that it cannot tell."""
    told = []
    for make, wanted, evidence in planted.CAUSES.values():
        for seed in list(SEEDS)[:10]:
            report = reported(make(seed), file, evidence)
            silent = wanted not in {one.id for one in report.findings}
            told.append(silent and wanted in {one.id for one in report.abstentions})
    return sum(told) / len(told)


def _share(name: str, share: float, bar: str, least: float) -> Figure:
    return Figure(name=name, value=share * 100, unit="%", bar=bar, passed=share >= least, seed=1000)
