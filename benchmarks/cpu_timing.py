"""How steady the reported CPU time is over ten launches beside two busy loops."""

import statistics
from collections.abc import Iterator

from benchmarks._figures import Figure
from benchmarks.load import busy
from nearpeak.core.case import Case
from nearpeak.core.measurement import Timing
from nearpeak.measure.isolated import measure_fresh
from nearpeak.ops import case

FIGURES = ("cpu_timing_compute_bound", "cpu_timing_memory_bound")
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
            worst = max(variation(one, LAUNCHES) for one in cases)
            yield Figure(
                name=f"cpu_timing_{name}_bound", value=100 * worst, unit="%", bar=f"<= {most:.0%}", passed=worst <= most
            )


def variation(one: Case, count: int) -> float:
    """Return standard deviation over mean of the reported centre over `count` launches."""
    centres_s = [measure_fresh(one, "torch_cpu", TIMING).cpu_low_s for _ in range(count)]
    ratio = statistics.stdev(centres_s) / statistics.fmean(centres_s)
    print(f"  {one.label()}: {statistics.fmean(centres_s) * 1e6:.0f} µs, {ratio:.1%}", flush=True)
    return ratio
