"""The cases of long parametrisations that `make test` leaves out: it runs a fixed sample of them, this all others."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks._figures import ROOT, Figure

FIGURES = ("long_tests_passed",)


def measure() -> Iterator[Figure]:
    """Yield how many of the cases that are marked `long` pass."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "long and not device", "-n", str(os.cpu_count() or 1), "--dist", "worksteal", "--unfolded"]
        command = [sys.executable, "-m", "pytest", *words, f"--junitxml={report}", "tests"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        if not report.is_file():
            raise RuntimeError(f"no report: {done.stdout[-500:]}{done.stderr[-500:]}")
        suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            print(line, flush=True)
    tried = counts["tests"] - counts["skipped"]
    passed = tried - counts["failures"] - counts["errors"]
    yield Figure(
        name=FIGURES[0], value=passed, unit=f"of {tried:,} cases", bar="all",
        passed=passed == tried > 0 == done.returncode,
    )  # fmt: skip
