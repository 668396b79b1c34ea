"""Command `nearpeak qualify`: the share of incorrect implementations (mutants) that a suite detects."""

import sys
from pathlib import Path

import typer

from nearpeak.cli.run.measure import LIMIT, MEMORY, timing_of
from nearpeak.cli.shared.options import check_writable
from nearpeak.units import counted


def qualify(
    suite: str = typer.Argument(help="Suite file, or the name of a built-in suite."),
    out: Path = typer.Option(..., "--out", "-o", help="File of scores (.jsonl): goes on where it stopped."),
    seed: int = typer.Option(0, "--seed", help="Seed of all inputs."),
    limit: str = LIMIT,
    memory: str = MEMORY,
) -> None:
    """Run every applicable mutant on each case of the suite, and write the number of mutants detected.

    'nearpeak suite show SUITE --scores FILE' computes effective coverage from them: covered and detectable. A
    survivor is a fault that the case does not see; a case without a score has the reason in its row.
    """
    from nearpeak.measurement.case_qualification import qualified
    from nearpeak.suites.suite_names import read_suite

    check_writable(out)
    timing, killed, all_count, unscored = timing_of("1 s", limit, "hot", 1, memory, check=False), 0, 0, 0
    cases = [chosen.case for chosen in read_suite(suite).chosen]
    for row in qualified(cases, seed, timing, out):
        dead, alive = len(row["killed"]), len(row["survived"])
        killed, all_count, unscored = killed + dead, all_count + dead + alive, unscored + (dead + alive == 0)
        score_text = row.get("reason") or f"{dead} of {dead + alive} mutants"
        left = f"; not: {', '.join(row['survived'])}" if alive else ""
        sys.stdout.write(f"{row['case']}: {score_text}{left}\n")
        sys.stdout.flush()
    if not all_count + unscored:
        sys.stdout.write(f"{out} holds a row for every case already, whatever its seed; another --out starts anew\n")
        return
    without = f"; {counted(unscored, 'case')} without a score" if unscored else ""
    sys.stdout.write(f"{killed} of {all_count} mutants detected{without}; written to {out}\n")
