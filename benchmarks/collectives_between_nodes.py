"""How far predicted collectives between nodes are from figures that users and maintainers of NCCL gave in public."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks._figures import Figure
from nearpeak.api.cluster_collectives import predict_collective
from nearpeak.core.systems.collective_time import CollectiveTime
from nearpeak.ops import case

FIGURES = ("collectives_between_nodes_median", "collectives_between_nodes_covered")
_TESTS, _NCCL = "github.com/NVIDIA/nccl-tests/issues/", "github.com/NVIDIA/nccl/issues/"


class Point(NamedTuple):
    """One public figure."""

    target: str
    """Device."""
    fabric: str
    """Fabric, as --fabric takes it."""
    kind: str
    """Collective."""
    rank_count: int
    """Ranks."""
    size_bytes: int
    """Whole message; 8 GiB where the source gives the largest of a run without its size."""
    bus_bytes_per_s: float
    """Bandwidth on the bus, as nccl-tests defines it."""
    source: str
    """Thread."""
    stride: int = 1
    """Distance of neighbouring ranks."""
    algorithm: str = ""
    """What the library was told to take."""


def _timed(size_bytes: int, time_us: float) -> float:
    """Return the bandwidth on the bus of an all-reduce of two ranks."""
    return size_bytes / (time_us * 1e-6)


MIB, GIB = 2**20, 2**30
POINTS = (
    Point("h100_sxm", "", "all_reduce", 8, 8 * GIB, 476e9, _TESTS + "290"),
    Point("h100_sxm", "", "all_reduce", 8, 8 * GIB, 480e9, _TESTS + "212"),
    Point("a100_sxm_80gb", "", "all_reduce", 8, 4 * GIB, 232.5e9, _TESTS + "175"),
    Point("a100_sxm_40gb", "ib_hdr:4", "all_reduce", 24, 128 * MIB, 96e9, _TESTS + "119"),
    Point("a100_sxm_80gb", "ib_hdr:4", "all_reduce", 16, 4 * GIB, 86e9, _TESTS + "175"),
    Point("h100_sxm", "ib400", "all_reduce", 16, 8 * GIB, 470e9, _TESTS + "309"),
    Point("h100_sxm", "ib400", "all_reduce", 32, 8 * GIB, 365.8e9, _TESTS + "309"),
    Point("h100_sxm", "roce400", "all_reduce", 256, 2 * GIB, 340e9, _NCCL + "1218"),
    Point("h100_sxm", "roce400", "all_gather", 256, 2 * GIB, 200e9, _NCCL + "1218"),
    Point("h20", "ib400", "all_reduce", 16, 8 * GIB, 343e9, _NCCL + "1244"),
    *(
        Point("h100_sxm", "ib400", "all_reduce", 2, size, _timed(size, time_us), _TESTS + "232", 8, "tree")
        for size, time_us in (
            (2 * MIB, 113.2), (4 * MIB, 154.4), (8 * MIB, 231.4), (16 * MIB, 420.5), (32 * MIB, 812.3)
        )
    ),
)  # fmt: skip
"""Public figures; they did not set any constant but the share of a port that is reached, which is of other threads."""


def measure() -> Iterator[Figure]:
    """Compare each figure with its prediction, and yield the median error and the share inside the intervals."""
    errors, inside = [], []
    for point in POINTS:
        found = _predicted(point)
        factor = 2 if point.kind == "all_reduce" else 1
        real_s = factor * (point.rank_count - 1) / point.rank_count * point.size_bytes / point.bus_bytes_per_s
        errors.append(abs(found.time_s / real_s - 1))
        inside.append(found.low_s <= real_s <= found.high_s)
        print(
            f"  {point.target} {point.fabric} {point.kind} n={point.rank_count} {point.size_bytes // MIB} MiB: "
            f"{1e6 * real_s:.0f} us, predicted {1e6 * found.time_s:.0f} [{1e6 * found.low_s:.0f}, "
            f"{1e6 * found.high_s:.0f}] ({point.source})",
            flush=True,
        )
    median, covered = 100 * float(np.median(errors)), 100 * float(np.mean(inside))
    print(
        f"  n {len(errors)}, mean {100 * np.mean(errors):.1f} %, p90 {100 * np.quantile(errors, 0.9):.1f} %", flush=True
    )
    yield Figure(
        name="collectives_between_nodes_median", value=median, unit="%", bar="<= 15%", passed=median <= 15
    )  # fmt: skip
    yield Figure(
        name="collectives_between_nodes_covered", value=covered, unit="%", bar=">= 80%", passed=covered >= 80
    )  # fmt: skip


def _predicted(point: Point) -> CollectiveTime:
    elements = point.size_bytes // 2 // point.rank_count * point.rank_count
    of = case("collective", elements=elements, dtype="fp16", ranks=point.rank_count, kind=point.kind)
    return predict_collective(of, point.target, point.fabric, point.stride, point.algorithm)
