"""Command `nearpeak compare`: two runners or software stacks on one case in alternating fresh processes."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.run.measure import (
    CACHE_HOT,
    CASES,
    LIMIT,
    MEMORY,
    NO_CHECK,
    THREADS,
    timing_of,
    warn_of_threads,
)
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import cases_of
from nearpeak.cli.shared.completion import runners
from nearpeak.cli.shared.options import seconds_of
from nearpeak.errors import INCONCLUSIVE_CODE, INCORRECT_CODE, SLOWER_CODE, UNAVAILABLE_CODE
from nearpeak.units import parse_share

if TYPE_CHECKING:
    from nearpeak.core.runs.paired_rounds import PairedComparison
    from nearpeak.judgement.round_plan import RoundPlan

_PROGRAM = "program"
"""Clock of `process:COMMAND`, whose times the program itself reports."""
PYTHON_A = typer.Option(None, "--python-a", help="Interpreter of the baseline: another software stack.")
PYTHON_B = typer.Option(None, "--python-b", help="Interpreter of the candidate.")


def compare(
    baseline: str = typer.Argument(
        metavar="A", help="Runner of the baseline, e.g. torch_cpu or callable:old.py:gemm.", autocompletion=runners
    ),
    candidate: str = typer.Argument(metavar="B", help="Runner of the candidate.", autocompletion=runners),
    cases: list[str] = CASES,
    tolerance: str = typer.Option("2%", "--tolerance", help="Change up to which the two count as the same."),
    budget: str = typer.Option("60 s", "--budget", help="Time for each case."),
    limit: str = LIMIT,
    cache: str = CACHE_HOT,
    threads: int = THREADS,
    memory: str = MEMORY,
    no_check: bool = NO_CHECK,
    python_a: Path | None = PYTHON_A,
    python_b: Path | None = PYTHON_B,
    json: bool = shared.JSON,
) -> None:
    """Judge whether B is faster than A, slower, or the same within the tolerance.

    Both run as processes that take turns on the device, five to forty pairs of them, forked from servers that start
    once. Exit code 10 when B is slower, 11 when the budget did not suffice for a verdict, 12 when a result is wrong, 1
    when one of the two cannot run the case, 0 otherwise. After the second pair it is known how many pairs the budget is
    enough for, and so what change it can show; stderr states both. With fewer than five pairs there is no verdict.
    """
    from nearpeak.api import measured_analysis
    from nearpeak.measurement.timing.interleaved_rounds import Arm

    arms = [
        Arm(runner=runner, python=str(python or sys.executable))
        for runner, python in ((baseline, python_a), (candidate, python_b))
    ]
    timing = timing_of("1 s", limit, cache, threads, memory, check=not no_check)
    warn_of_threads(threads)
    within, spent_s = parse_share(tolerance, "--tolerance"), seconds_of(budget, "--budget")
    comparisons = []
    for case in cases_of(cases, "compare"):
        comparison = measured_analysis.compare(
            case, arms[0], arms[1], timing, tolerance_ratio=within, budget_s=spent_s, notify=_tell
        )
        comparisons.append(comparison)
        sys.stdout.write(f"{_json_line(comparison) if json else _words(comparison)}\n")
        sys.stdout.flush()
    raise typer.Exit(_exit_code(comparisons))


def _tell(plan: "RoundPlan") -> None:
    """Say on standard error what the budget can show."""
    from nearpeak.reports.figure_text import hung

    sys.stderr.write("\n".join(hung([f"compare: {plan.text}"])) + "\n")


def _json_line(comparison: "PairedComparison") -> str:
    clock = _PROGRAM if comparison.clock and any(_by_program(comparison)) else comparison.clock
    return jsonlib.dumps(asdict(comparison) | {"case": comparison.case.record(), "clock": clock})


def _exit_code(comparisons: "list[PairedComparison]") -> int:
    from nearpeak.core.runs.measurement import FAILURES

    outcomes = {comparison.outcome for comparison in comparisons}
    verdicts = {comparison.judgement.verdict for comparison in comparisons if comparison.judgement is not None}
    if "infra" in outcomes:
        return UNAVAILABLE_CODE
    if "incorrect" in outcomes:
        return INCORRECT_CODE
    if "regression" in verdicts:
        return SLOWER_CODE
    if outcomes & {*FAILURES, "unsupported"} - {"timeout"}:
        return 1
    return INCONCLUSIVE_CODE if "inconclusive" in verdicts or outcomes - {"compared"} else 0


def _by_program(comparison: "PairedComparison") -> tuple[bool, bool]:
    """Return for baseline and candidate whether each is a program that reports its own times."""
    names = (runner.partition(":")[0] for runner in (comparison.baseline, comparison.candidate))
    baseline, candidate = (name == "process" for name in names)
    return baseline, candidate


def _time_of(comparison: "PairedComparison") -> str:
    """Return in words which time was compared."""
    sides = _by_program(comparison)
    if not any(sides):
        return f"{comparison.clock} time"
    return f"time by the program's own clock{'' if all(sides) else ' on one side'}"


def _words(comparison: "PairedComparison") -> str:
    """Return the comparison of one case in a few lines for people."""
    from nearpeak.judgement.paired_verdict import ALPHA_RATIO, rounds_needed
    from nearpeak.ops import label_of
    from nearpeak.reports.figure_text import hung

    if comparison.judgement is None:
        option = " (--limit)" if comparison.outcome == "timeout" else ""
        return "\n".join(hung([f"{label_of(comparison.case)}: {comparison.outcome}: {comparison.note}{option}"]))
    judgement = comparison.judgement
    low, centre, high = (
        f"{ratio - 1:+.1%}" for ratio in (judgement.low_ratio, judgement.time_ratio, judgement.high_ratio)
    )
    known = (
        f"{1 - ALPHA_RATIO:.1%}: {low} to {high}; {judgement.round_count} rounds; "
        f"tolerance {judgement.tolerance_ratio:.1%}, "
        f"detectable {judgement.detectable_ratio:.1%}"
    )
    if judgement.detectable_ratio > 1:
        known = f"{judgement.round_count} rounds: too few to say how well that is known; a longer --budget gives more"
    lines = [
        f"{label_of(comparison.case)}: {judgement.verdict}",
        f"  {comparison.candidate} against {comparison.baseline}: {centre} {_time_of(comparison)} ({known})",
    ]
    if judgement.verdict == "inconclusive":
        lines.append(
            "  a change of the tolerance needs about "
            f"{rounds_needed(comparison.rounds, judgement.tolerance_ratio)} rounds"
        )
    lines += [f"  {what}: {left or 'none'} → {right or 'none'}" for what, left, right in comparison.differences]
    return "\n".join(hung(lines))
