"""Deep-learning accelerators (NVDLA) of boards: documented int8 rates by power mode, and the time of a model on one."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import toml_of_file
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.systems.edge.dla_layers import accelerator_kernels
from nearpeak.units import parse

RATES = Path(__file__).with_name("dla_rates.toml")
MEMORY_RATIO = 0.25
"""Share of the board's memory rate that one accelerator reaches, its products taking their time before. Chosen on the
ResNet-50 of NVIDIA's measurements on Jetson AGX Orin 64GB (README, DLA Dense performance, two accelerators): with it
ResNet-50 (batch 2) comes out 5 to 7 % too fast in MAXN, 50W, 30W and 15W, the backbone ResNet-34 (1280 × 768) 13 to
20 % too slow, and the body of SSD-MobileNetV1 (batch 2), whose depthwise products are slower, 37 to 48 % too fast."""
INTERVAL_RATIO = 2.0
"""Factor of the interval of that model, which holds all of those measurements; three networks are no sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DlaUnit:
    """One accelerator of a board in a power mode."""

    unit_count: int
    """Accelerators of the board."""
    op_per_s: float
    """int8 operations per second of one, dense weights; a multiplication with an addition is 2."""
    source: str
    """Document of the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DlaTime:
    """Time of one inference on one accelerator."""

    time_s: float
    """Expected."""
    low_s: float
    """Low end of the 90 % interval, never under the floor."""
    high_s: float
    """High end."""
    floor_s: float
    """Products at the documented rate, or all bytes at the board's memory rate, whichever is longer."""


def dla_modes(board: str) -> tuple[str, ...]:
    """Return the power modes of a board in which a document states the rate of its accelerators, `full` for the whole.

    Raises:
        NotModelledError: there is none.
    """
    boards = _boards()
    if board not in boards:
        raise NotModelledError(
            f"{board}: no document at hand states a rate of its DLA, or it has none; there are rates of "
            f"{', '.join(sorted(boards))}"
        )
    return tuple(boards[board]["rate"])


def dla_unit(target: str) -> DlaUnit:
    """Return an accelerator of a board in a power mode.

    Raises:
        NotModelledError: no document states its rate.

    >>> dla_unit("jetson_agx_orin:30W").op_per_s
    22500000000000.0
    >>> dla_unit("jetson_orin_nano")
    Traceback (most recent call last):
    nearpeak.errors.NotModelledError: jetson_orin_nano: no document at hand states a rate of its DLA, or it has none; \
there are rates of jetson_agx_orin, jetson_agx_xavier, jetson_orin_nx
    """
    board, _, mode = target.partition(":")
    name, known = mode.partition("@")[0] or "full", dla_modes(board)
    if name not in known:
        raise NotModelledError(
            f"{target}: no document states the rate of its DLA in mode {name}; there are those of {', '.join(known)}"
        )
    row = _boards()[board]
    rate = parse(row["rate"][name], "OP/s")
    return DlaUnit(unit_count=row["unit_count"], op_per_s=rate / row["unit_count"], source=row["source"])


def dla_time(step: Workload, target: Target) -> DlaTime:
    """Return the time of one inference on one accelerator: int8 products, then all bytes over its share of the memory.

    Args:
        step: as captured; lowered to an inference engine, it no longer states the functions that were folded.

    Raises:
        NotModelledError: no document states the rate, the step has layers that accelerators do not run, or products in
            a format that int8 does not replace.
    """
    unit, bandwidth = dla_unit(target.name), target.dram.bandwidth_bytes_per_s
    cases = accelerator_kernels(step).case_counts()
    if not bandwidth:
        raise NotModelledError(f"{target.name}: no document states its memory rate, which a DLA shares")
    work = sum((work_of(case) * count for case, count in cases.items()), start=work_of(next(iter(cases))) * 0)
    products = {kind: amount for kind, amount in work.flop.items() if kind.startswith("matrix.")}
    wide = [kind for kind in products if kind != "matrix.int8"]
    if wide:
        raise NotModelledError(f"{step.name}: products in {wide[0].partition('.')[2]}; documents state the rate of a "
                               "DLA for int8 alone")  # fmt: skip
    product_s, moved = sum(products.values()) / unit.op_per_s, work.read_bytes + work.write_bytes
    floor_s, time_s = max(product_s, moved / bandwidth), product_s + moved / (MEMORY_RATIO * bandwidth)
    return DlaTime(
        time_s=time_s, low_s=max(floor_s, time_s / INTERVAL_RATIO), high_s=time_s * INTERVAL_RATIO, floor_s=floor_s
    )  # fmt: skip


@cache
def _boards() -> dict[str, Any]:
    return toml_of_file(RATES)
