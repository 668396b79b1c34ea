"""Random quantised ONNX files on this CPU: none may run faster through ONNX Runtime than its bound."""

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks._figures import Figure
from benchmarks._quantised_graphs import SCHEMES, quantised_file
from nearpeak.api.questions import bound, capture
from nearpeak.core.answers.bound import Policy
from nearpeak.measurement.machine.onnx_session import runtime_or_refusal, session_of
from nearpeak.precision.quantisation.runtime_timing import random_feeds, shortest_s
from nearpeak.targets import CPU, target_of

FIGURES = ("quantised_below_bound",)
GRAPH_COUNT = 200
SEED = 20261129
THREAD_COUNTS = (1, 2)
BUDGET_S = 0.15
"""Time of running each file with each number of threads; the shortest run counts."""


def measure() -> Iterator[Figure]:
    """Run the files, and yield how many beat their bound; the roofs are those of 'nearpeak calibrate roofs'."""
    below = 0
    nearest = 0.0
    for name, least_s, run_s in compared(GRAPH_COUNT, SEED):
        nearest = max(nearest, least_s / run_s)
        if run_s < least_s:
            below += 1
            print(f"  below its bound: {name}: {run_s:.4g} s, bound {least_s:.4g} s", flush=True)
    print(f"  {GRAPH_COUNT} files; the nearest reached {nearest:.0%} of its bound", flush=True)
    yield Figure(name="quantised_below_bound", value=below, unit="", bar="= 0", passed=below == 0)


def compared(count: int, seed: int, budget_s: float = BUDGET_S) -> Iterator[tuple[str, float, float]]:
    """Yield the name, the bound and the shortest run of each random file; caches may hold the inputs of a run."""
    runtime, target = runtime_or_refusal("benchmark"), target_of(CPU)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            path = Path(folder) / f"{number}.onnx"
            name = quantised_file(path, draw, SCHEMES[number % len(SCHEMES)])
            least_s = bound(capture(path), target, Policy(cold_inputs=False)).time_s
            times = []
            for threads in THREAD_COUNTS:
                session = session_of(runtime, path, threads)
                run = partial(session.run, None, random_feeds(session, number))
                run()  # warms it
                times.append(shortest_s(run, budget_s))
            yield f"{number} {name}", least_s, min(times)
