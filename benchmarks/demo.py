"""How long `make demo` takes in an empty clone: installation, roofs of this CPU and all reports."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import ROOT, Figure

FIGURES = ("demo_seconds",)


def measure() -> Iterator[Figure]:
    """Yield the wall time of the whole command on a machine that has seen nothing of nearpeak yet."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {**os.environ, "XDG_DATA_HOME": f"{folder}/data", "XDG_CACHE_HOME": f"{folder}/cache"}
        start = time.perf_counter()
        subprocess.run(["make", "demo"], check=True, capture_output=True, cwd=clone, env=environment)
        seconds = time.perf_counter() - start
    yield Figure(name="demo_seconds", value=seconds, unit="s", bar="<= 300 s", passed=seconds <= 300)
