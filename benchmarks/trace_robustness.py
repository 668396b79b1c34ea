"""How many of 5,000 damaged files of each trace format end otherwise than in a trace or an error of one line."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import Figure
from benchmarks._trace_files import WRITERS

FIGURES = ("trace_mutants", "trace_mutant_faults")
EACH = 5_000
_LIMIT_S = 3_600


def measure() -> Iterator[Figure]:
    """Yield how many files were tried and how many of them failed; each format has a process of its own, of 4 GiB."""
    faults = {form: _faults(form) for form in WRITERS}
    tried = EACH * len(faults)
    for form, lines in faults.items():
        for line in lines[:5]:
            print(f"  {form}: {line}", file=sys.stderr)
    worst = sum(len(lines) for lines in faults.values())
    yield Figure(
        name="trace_mutants",
        value=tried,
        unit="files",
        bar="5,000 of each format",
        passed=tried >= 5_000 * len(WRITERS),
        seed=0,
    )
    yield Figure(name="trace_mutant_faults", value=worst, unit="files", bar="= 0", passed=worst == 0, seed=0)


def _faults(form: str) -> list[str]:
    """Return a line for each file that failed; one that hangs or ends the process counts too."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks._trace_mutants", form, "0", str(EACH), folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return [f"hangs at seed {(Path(folder) / 'seed').read_text()}"]
        lines = done.stdout.splitlines()
        if done.returncode and not lines:
            lines = [
                f"ended with {done.returncode} at seed {(Path(folder) / 'seed').read_text()}: {done.stderr[-200:]}"
            ]
        return lines
