"""How steady the reported CPU time is over ten launches beside two busy loops.

Between the launches one process that goes on times the same case as often: its centres vary by what the machine does
from second to second, which no way to start processes can better.
"""

import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks._figures import Figure
from benchmarks.load import busy
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.work.case import Case
from nearpeak.measurement.isolated_measurement import measure_fresh
from nearpeak.measurement.runners import runner_of
from nearpeak.ops import case

FIGURES = (
    "cpu_timing_compute_bound", "cpu_timing_memory_bound", "cpu_timing_compute_one_process",
    "cpu_timing_memory_one_process",
)  # fmt: skip
LAUNCHES = 10
COMPUTE_BOUND = (
    case("gemm", m=256, n=256, k=256, dtype="fp32"),
    case("gemm", m=512, n=512, k=512, dtype="fp32"),
    case("gemm", m=256, n=256, k=256, dtype="bf16"),
    case("conv", batch=1, in_channels=64, out_channels=64, h=28, w=28, kh=3, kw=3, ph=1, pw=1, dtype="fp32"),
)
MEMORY_BOUND = (
    case("softmax", rows=2048, columns=1024, dtype="fp32"),
    case("layer_norm", rows=2048, hidden=1024, dtype="fp32"),
    case("elementwise", function="add", elements=2**22, dtype="fp32"),
)
TIMING = Timing(cache="hot", budget_s=1.0, validate=False)


def measure() -> Iterator[Figure]:
    """Yield the largest coefficient of variation of the reported centre, compute-bound and memory-bound."""
    with busy():
        for name, cases, most in (("compute", COMPUTE_BOUND, 0.03), ("memory", MEMORY_BOUND, 0.08)):
            found = [variations(one, LAUNCHES) for one in cases]
            launches, stretches = (max(each) for each in zip(*found, strict=True))
            yield Figure(
                name=f"cpu_timing_{name}_bound", value=100 * launches, unit="%", bar=f"<= {most:.0%}",
                passed=launches <= most,
            )  # fmt: skip
            yield Figure(
                name=f"cpu_timing_{name}_one_process", value=100 * stretches, unit="%", bar="", passed=True
            )  # fmt: skip


def variations(one: Case, count: int) -> tuple[float, float]:
    """Return standard deviation over mean of the reported centre over launches, and over stretches of one process."""
    launches_s, stretches_s = [], []
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as same:
        for _ in range(count):
            launches_s.append(measure_fresh(one, "torch_cpu", TIMING).cpu_low_s)
            stretches_s.append(same.submit(_centre_s, one).result())
    found = _variation(launches_s), _variation(stretches_s)
    print(
        f"  {one.label()}: {statistics.fmean(launches_s) * 1e6:.0f} µs, {found[0]:.1%}; one process {found[1]:.1%}",
        flush=True,
    )
    return found


def _centre_s(one: Case) -> float:
    return runner_of("torch_cpu", TIMING).measure(one).cpu_low_s


def _variation(centres_s: Sequence[float]) -> float:
    return statistics.stdev(centres_s) / statistics.fmean(centres_s)
