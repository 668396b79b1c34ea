"""How long `make demo` takes once everything is installed, roofs of this CPU included."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks._figures import ROOT, Figure

FIGURES = ("demo_seconds",)


def measure() -> Iterator[Figure]:
    """Yield the wall time of the demonstration on a machine whose roofs are not known yet."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_DATA_HOME": folder}
        start = time.perf_counter()
        command = [sys.executable, str(ROOT / "examples/demo.py")]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
        seconds = time.perf_counter() - start
    yield Figure(name="demo_seconds", value=seconds, unit="s", bar="<= 180 s", passed=seconds <= 180)
