"""Board power model: the draw of each unit, the power limit, and the clock to which the board throttles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.expected_energy import PARTS
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.edge.scoped_power import PowerScope
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.coefficient_reader import calibration_of_group, read_coefficients
from nearpeak.prediction.documented_target import documented_of, stock_of
from nearpeak.prediction.engine.engine_coefficients import is_jetson
from nearpeak.prediction.engine.engine_power import power_law
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, coefficient_ranges
from nearpeak.prediction.power.unit_activity import Busy, activity, busy_times
from nearpeak.prediction.power.voltage import clock_drawing, drawn_ratio
from nearpeak.prediction.scalar_or_column import chosen, clipped, is_number, larger, raised, smaller
from nearpeak.targets import TARGETS, target_of, user_folder

_FOLDER = Path(__file__).parents[1] / "coefficients/power"
_ALIKE = {
    "fp16": "bf16", "fp8_e4m3": "fp8_tensor", "fp8_e5m2": "fp8_tensor", "fp8_row": "fp8_tensor", "mxfp8": "fp8_block",
    "mxfp4": "nvfp4", "fp4_e2m1": "nvfp4", "int8": "fp8_tensor", "int8_row": "fp8_tensor",
}  # fmt: skip
"""Substitute format for power figures where a format has none; bf16 for all others."""
_SHARPNESS = 8.0
"""Power at which a board's limit takes over from what its units would draw."""
LEAST_CLOCK_RATIO = 0.15
"""Least clock, of the full one: an assumption, no table has it."""
Parts = Sequence[Any]
"""Power by part of a board, in the order of `PARTS`: columns, or numbers for one case."""
_FIXED_COUNT = 2
"""Parts that no work changes, idle and busy, which come first."""
_STEADY = [list(PARTS).index("memory")]
_CLOCKED = [place for place in range(len(PARTS)) if place not in _STEADY]
"""Parts that fall with the clock and the voltage: also what a board draws that waits at its full clock, leakage
included. Memory has a separate clock.
"""
FAR_RATIO = 3.0
"""Factor of the interval's width, in logarithms, with another device's ratios: an assumption."""
COEFFICIENTS = coefficient_ranges(
    # name, least, largest, usual, meaning, measurements that identify it
    ("idle_ratio", 0.02, 0.5, 0.24, "power at full clocks without a kernel, of the limit", "a board that waits"),
    ("busy_ratio", 0.0, 0.25, 0.1, "power that any kernel adds, of the limit", "one small kernel after the other"),
    ("filled_ratio", 0.0, 1.0, 0.3, "power of tiles on all multiprocessors, of the limit", "one wave with small k"),
    ("products_ratio", 0.05, 1.3, 1.1, "power of products at the documented rate, of the limit", "large products"),
    ("vector_ratio", 0.0, 3.0, 0.6, "power of vector units at the documented rate, of the limit", "long gelu, softmax"),
    ("cache_ratio", 0.05, 3.0, 1.0,
     "power of bytes that the last cache feeds, at the rate of memory, of the limit", "operands within the cache"),
    ("memory_ratio", 0.05, 1.2, 0.5, "power of memory at the documented rate, of the limit", "m <= 16, copies"),
)  # fmt: skip


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    dtype = dtypes.get("dtype", "bf16")
    return tuple(dict.fromkeys((dtype, _ALIKE.get(dtype, "bf16"), "bf16")))


def board_w(target: Target) -> float:
    """Return the power limit of a board; of an edited one what documents state at most.

    Raises:
        NotModelledError: no document states it.
        SpecError: the board draws more at rest.
    """
    return _board_w(Same(target))


@lru_cache(maxsize=256)
def _board_w(same: "Same[Target]") -> float:
    target, documented = same.held, documented_of(same.held)
    if target.power_w is None:
        raise NotModelledError(f"{target.name}: no prediction of energy; it states no power limit")
    if target.power_w == documented.power_w and stock_of(target).name in TARGETS:
        return target.power_w
    least_w = idle_w(target)
    if target.power_w < least_w:
        most = f"{least_w:.0f} W to {documented.power_w:g} W" if stock_of(target).name in TARGETS else "more than that"
        raise SpecError(
            f"{target.name}: the power limit is {target.power_w:g} W, but such a board draws {least_w:.0f} W without "
            f"any work; {most} is right"
        )
    return min(target.power_w, documented.power_w or target.power_w)


def limit_note(target: Target) -> str:
    """Return a note on a limit above the documented one; empty for others.

    >>> from nearpeak.targets import target_of
    >>> limit_note(target_of("h100_sxm", ['power.limit="900 W"']))
    'the power limit of 900 W is above the 700 W that documents state as the most: predicted at 700 W'
    """
    most_w = documented_of(target).power_w
    if target.power_w is None or most_w is None or target.power_w <= most_w:
        return ""
    return (
        f"the power limit of {target.power_w:g} W is above the {most_w:g} W that documents state as the most: "
        f"predicted at {most_w:g} W"
    )


def idle_w(target: Target) -> float:
    """Return the idle power of a board at its clock; of boards without a device file, as of similar ones.

    Power at rest is taken to grow with the multiprocessors there, the least of all boards of the architecture standing
    for it; 0 where none of them states a limit.
    """
    stock, ratio = stock_of(target), power_calibration(stock_of(target).name, "bf16").coefficients[0].value
    if stock.name in TARGETS and stock.power_w is not None:
        return ratio * stock.power_w * float(drawn_ratio(top_ratio(target)))
    alike = [target_of(name) for name in TARGETS]
    each_w = [
        board.power_w / board.sm_count for board in alike if board.architecture == target.architecture and board.power_w
    ]
    return ratio * min(each_w, default=0.0) * target.sm_count


def top_ratio(target: Target) -> float:
    """Return the highest clock of a target as a share of the whole device's: power modes lower it.

    >>> from nearpeak.targets import target_of
    >>> round(top_ratio(target_of("jetson_agx_xavier:10W")), 2), top_ratio(target_of("h100_sxm:1g.10gb"))
    (0.38, 1.0)
    """
    stock = stock_of(target)
    return target.clock_hz / stock.clock_hz if target.clock_hz and stock.clock_hz else 1.0


def demand_w(target: Target, cases: CaseColumns, values: Any, time_s: Any) -> Parts:
    """Return the power of a board's parts without its limit, each a column, or a number for one case.

    Energy per byte and per operation are those of the whole device, independent of limit, share and memory size, at
    the clock and the voltage of the target.

    Source: derived; activity of each unit times a constant, as in AccelWattch (MICRO'21), units as in the roofline.
    """
    return demand_of(target, busy_times(target, stock_of(target), cases, is_one=is_number(time_s)), values, time_s)


def demand_of(target: Target, busy: Busy, values: Any, time_s: Any) -> Parts:
    """Return the same of cases that keep units so busy."""
    shares, limit_w, drawn = activity(busy, time_s), board_w(stock_of(target)), _drawn_at_top(Same(target))
    if is_jetson(target):
        return _rail_demand(target, shares)
    demand = [limit_w * value * shares[name] for name, value in zip(PARTS, values, strict=True)]
    return [watts * drawn if place in _CLOCKED else watts for place, watts in enumerate(demand)]


def _rail_demand(target: Target, shares: Mapping[str, Any]) -> Parts:
    """Return the power of a Jetson's parts at the wall, from published meters instead of a share of its limit."""
    law, stock = power_law(PowerScope.WALL), stock_of(target)
    pace = target.sm_count * target.clock_hz / 1e9
    slower = stock.sm_count * stock.clock_hz / (target.sm_count * target.clock_hz)
    products = smaller(slower * shares["products"], 1.0)
    clocked = pace**law.pace_exponent_ratio
    watts = {"idle": law.rest_w, "busy": law.clock_w * clocked, "products": law.products_w * clocked * products}
    return [watts.get(name, 0.0) for name in PARTS]


@lru_cache(maxsize=256)
def _drawn_at_top(target: "Same[Target]") -> float:
    return float(drawn_ratio(top_ratio(target.held)))


def limited_w(demand: Parts, limit_w: float) -> Parts:
    """Return the parts as a board draws them that lowers its clock at its limit: those that depend on it shrink.

    Idle and busy power were fitted as constants, so that they shrink only where they exceed the limit by themselves.

    >>> round(sum(limited_w([250.0, 100.0, 400.0, 500.0, 0.0, 0.0, 100.0], 1000.0)))
    989
    """
    fixed, whole = demand[0] + demand[1], sum(demand)
    total = whole / raised(1 + raised(whole / limit_w, _SHARPNESS), 1 / _SHARPNESS)
    scale = clipped((total - fixed) / larger(whole - fixed, 1e-9), 0.0, 1.0)
    fixed_scale = smaller(total / larger(fixed, 1e-9), 1.0)
    return [watts * (fixed_scale if place < _FIXED_COUNT else scale) for place, watts in enumerate(demand)]


def clock_ratio(demand: Parts, limit_w: float, top: float = 1.0) -> Any:
    """Return the share of its clock at which a board stays within its limit, row by row; 1 where it need not fall.

    Power falls with the clock and the square of a voltage that falls linearly to a floor; memory has a separate
    clock.

    Args:
        demand: what the parts draw at the clock `top`, a share of the full one.

    >>> [round(clock_ratio([200.0, 100.0, 0.0, one, 0.0, 0.0, 100.0], 1000.0), 2) for one in (300.0, 900.0)]
    [1.0, 0.88]
    """
    steady, clocked = (sum([demand[place] for place in places]) for places in (_STEADY, _CLOCKED))
    left = clipped((limit_w - steady) / larger(clocked, 1e-9), 0.0, 1.0)
    if isinstance(left, float) and left == 1.0:
        return left
    ratio = clock_drawing(left * float(drawn_ratio(top))) / top
    return chosen(left == 1.0, 1.0, clipped(ratio, LEAST_CLOCK_RATIO, 1.0))


@lru_cache(maxsize=256)
def power_calibration(device: str, dtype: str) -> Calibration:
    """Return the coefficients of a device's power in one format: its own, or the ratios of the measured device."""
    for distance, stem in enumerate((device, "_prior")):
        for path in (user_folder() / "coefficients" / f"{stem}.toml", _FOLDER / f"{stem}.toml"):
            if path.exists():
                stored = read_coefficients(path)["groups"]
                for group in _groups("", {"dtype": dtype}):
                    if f"power.{group}" in stored:
                        name = f"{stem} power.{group}"
                        return calibration_of_group(
                            stored[f"power.{group}"], name, KERNEL_MODEL, FAR_RATIO if distance else 1.0
                        )
    raise NotModelledError(f"{device}: no coefficients for power in {dtype}")


def meter_calibration(target: Target, used: Calibration) -> Calibration:
    """Return interval and source of a Jetson's power, which published meters give; those of other boards as they are.

    Args:
        used: coefficients of other boards.
    """
    if not is_jetson(target):
        return used
    law = power_law(PowerScope.WALL)
    return replace(
        used, name="jetson_tensorrt power.wall", row_count=law.row_count, source=law.source,
        low_ratio={"power": 1 / law.interval_ratio}, high_ratio={"power": law.interval_ratio}, distance_count=1,
    )  # fmt: skip


def _no_rows(target: Target, cases: CaseColumns, _scalars: Any, _setting: Setting) -> Rows:
    raise NotModelledError(f"{target.name}: power of {cases.op} follows from a time; use power_w")


KERNEL_MODEL = KernelModel(
    name="power", ops=(), version="power-2", coefficients=COEFFICIENTS, terms=tuple(PARTS),
    regimes=dict.fromkeys(PARTS, "power"), groups=_groups, rows=_no_rows,
)  # fmt: skip
"""The coefficients of power as calibrations and fits take them; power follows from a time, so it predicts no case."""
