"""CPU seconds and memory to read and analyse 1 GB of the PyTorch profiler's JSON, beside HolisticTraceAnalysis."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import Figure
from benchmarks._kineto_file import write

FIGURES = ("trace_cpu_s", "trace_peak_bytes", "trace_events", "trace_hta_ratio")
GIGABYTE, SMALL = 1_000_000_000, 200_000_000
OTHER = "NEARPEAK_HTA_PYTHON"
"""Names the interpreter that has HolisticTraceAnalysis; its dependencies are not ours."""
_OURS = """
import json, resource, sys, time
from pathlib import Path
from nearpeak.trace import read_trace
from nearpeak.traces.timeline.trace_steps import steps_of
from nearpeak.traces.timeline.device_time import timelines
trace = read_trace(Path(sys.argv[1]))
read_s = time.process_time()
if len(sys.argv) > 2:
    timelines(trace), steps_of(trace)
print(json.dumps([time.process_time(), read_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, trace.header.record_count]))
"""
_THEIRS = """
import sys, time
from hta.trace_analysis import TraceAnalysis
begin = time.process_time()
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
print(time.process_time() - begin)
"""


def measure() -> Iterator[Figure]:
    """Yield CPU time of a whole process that reads and analyses, its peak memory, and the ratio on a smaller file."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.json", Path(folder) / "small.json"
        write(large, GIGABYTE)
        _ours(large)  # what is compiled once for each machine is compiled now
        cpu_s, _, peak, count = _ours(large, "analyse")
        yield Figure(name="trace_events", value=count, unit="events", bar="", passed=True, seed=0)
        yield Figure(name="trace_cpu_s", value=cpu_s, unit="CPU s", bar="<= 60 s for 1 GB", passed=cpu_s <= 60, seed=0)
        yield Figure(name="trace_peak_bytes", value=peak, unit="B", bar="<= 2 GB", passed=peak <= 2e9, seed=0)
        write(small, SMALL)
        ratio = _ratio(small)
        yield Figure(
            name="trace_hta_ratio",
            value=ratio,
            unit="x" if ratio else "x, not measured",
            bar=">= 10",
            passed=ratio >= 10,
            seed=0,
        )


def _ours(path: Path, *more: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", _OURS, str(path), *more], check=True, capture_output=True, text=True)
    return [float(one) for one in json.loads(done.stdout)]


def _ratio(path: Path) -> float:
    """Return how much longer HolisticTraceAnalysis takes to load the file, its imports left out; 0 where it is not here."""
    interpreter = os.environ.get(OTHER, "")
    if not interpreter:
        print(f"  not measured: {OTHER} names no interpreter with HolisticTraceAnalysis", file=sys.stderr)
        return 0.0
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [interpreter, "-c", _THEIRS, str(path)], check=True, capture_output=True, text=True, env=clean
    )
    return float(done.stdout.splitlines()[-1]) / _ours(path)[1]
