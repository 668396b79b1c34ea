"""How often the planted cause of a trace is found first, how near its gain is, and what healthy traces show."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import _planted_traces as planted
from benchmarks._figures import Figure
from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.targets import target_of
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import PLANTED, report_of

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
        near, gained, residual = 0, 0, 0
        firsts: list[tuple[str, str]] = []
        for make, wanted, _ in planted.CAUSES.values():
            for seed in SEEDS:
                program = make(seed)
                report = reported(program, file)
                first = report.findings[0] if report.findings else None
                firsts.append((wanted, first.id if first else ""))
                residual = max(residual, abs(report.shortfall.residual_ns) if report.shortfall else 0)
                truth_s = (planted.step_ns(program) - planted.step_ns(planted.cured(program))) * 1e-9
                if truth_s > 0:
                    gained += 1
                    near += (
                        first is not None and first.id == wanted and abs(first.gain_s - truth_s) <= GAIN_RATIO * truth_s
                    )
        found = Counter(wanted for wanted, first in firsts if wanted == first)
        yield _share("planted_traces_first", found.total() / len(firsts), ">= 95 %", 0.95)
        worst = min(found[wanted] for _, wanted, _ in planted.CAUSES.values())
        yield _share("planted_traces_worst_cause", worst / len(SEEDS), ">= 90 %", 0.90)
        yield _share("planted_traces_gain", near / gained, ">= 90 % within 15 %", 0.90)
        yield Figure(name="planted_traces_residual_ns", value=residual, unit="ns", bar="<= 1 ns", passed=residual <= 1)
        healthy = [reported(make(seed), file).findings for make in planted.HEALTHY for seed in range(1000, 1200)]
        share = sum(map(bool, healthy)) / len(healthy)
        yield Figure(
            name="planted_traces_healthy", value=share * 100, unit="%", bar="<= 2 %", passed=share <= 0.02, seed=1000
        )
        _keep([*firsts, *(("", one[0].id if one else "") for one in healthy)])
        yield _share("planted_traces_abstained", _abstained(file), "100 %", 1.0)


def _keep(firsts: list[tuple[str, str]]) -> None:
    """Write for each kind of finding how often it came first where its cause was planted, and where it was not."""
    counts = {}
    for kind in sorted({wanted for wanted, _ in firsts if wanted}):
        there = [first == kind for wanted, first in firsts if wanted == kind]
        elsewhere = [first == kind for wanted, first in firsts if wanted != kind]
        counts[kind] = {
            "trace_count": len(there), "right_count": sum(there), "other_count": len(elsewhere),
            "wrong_count": sum(elsewhere),
        }  # fmt: skip
    keep(counts)


def keep(counts: dict[str, dict[str, int]]) -> None:
    """Write counts by kind of finding; those of kinds that are scored elsewhere stay."""
    before = json.loads(PLANTED.read_text("utf-8"))["findings"] if PLANTED.exists() else {}
    record = {"date": datetime.now(UTC).date().isoformat(), "findings": dict(sorted({**before, **counts}.items()))}
    PLANTED.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def reported(program: planted.Planted, file: Path, without: tuple[str, ...] = ()) -> TraceReport:
    """Return what is found in a planted trace that went through a file."""
    device = planted.target(program)
    executed = executed_of(read_trace(planted.write(program, file, without)), target_of(device) if device else None)
    plain_s = None if "unprofiled" in without else program.unprofiled_s
    return report_of(replace(executed, unprofiled_step_s=plain_s))


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
