"""Power: what a board draws while a case runs, from how much of the time each of its units is busy."""

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.expected_energy import PARTS
from nearpeak.core.prediction import Calibration
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._activity import activity
from nearpeak.predict._calibrations import calibration_of_group, read_coefficients
from nearpeak.predict._documented import stock_of
from nearpeak.predict._form import CaseColumns, Form, Rows, Setting, scalars
from nearpeak.targets import user_folder

_FOLDER = Path(__file__).parents[1] / "coefficients/power"
_ALIKE = {
    "fp16": "bf16", "fp8_e4m3": "fp8_tensor", "fp8_e5m2": "fp8_tensor", "fp8_row": "fp8_tensor", "mxfp8": "fp8_block",
    "mxfp4": "nvfp4", "fp4_e2m1": "nvfp4", "int8": "fp8_tensor", "int8_row": "fp8_tensor",
}  # fmt: skip
"""Format whose figures stand in where a format has none of its own; bf16 for all others."""
_SHARPNESS = 8.0
"""Power at which a board's limit takes over from what its units would draw."""
VOLTAGE_AT_REST_RATIO, VOLTAGE_FLOOR_RATIO, LEAST_CLOCK_RATIO = 0.4, 0.65, 0.15
"""Voltage towards clock 0, its least, and the least clock, of those at full clock: assumptions, no table has them."""
_GRID_COUNT = 1 + 2**11
"""Clocks between which power is taken to be straight: off by less than a millionth."""
_STEADY = [list(PARTS).index("memory")]
_CLOCKED = [place for place in range(len(PARTS)) if place not in _STEADY]
"""Parts that fall with the clock and the voltage: also what a board draws that waits at its full clock, leakage
included. Memory has a clock of its own.
"""
FAR_RATIO = 3.0
"""How much wider, in logarithms, the interval is where another device's ratios stand in: an assumption."""
SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
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
    """Return the power limit of a board.

    Raises:
        NotModelledError: no document states it.
    """
    if target.power_w is None:
        raise NotModelledError(f"{target.name}: no prediction of energy; it states no power limit")
    return target.power_w


def top_ratio(target: Target) -> float:
    """Return the highest clock of a target as a share of the whole device's: power modes lower it.

    >>> from nearpeak.targets import target_of
    >>> round(top_ratio(target_of("jetson_agx_xavier:10W")), 2), top_ratio(target_of("h100_sxm:1g.10gb"))
    (0.38, 1.0)
    """
    stock = stock_of(target)
    return target.clock_hz / stock.clock_hz if target.clock_hz and stock.clock_hz else 1.0


def demand_w(target: Target, cases: CaseColumns, values: Any, time_s: Any) -> Any:
    """Return what the parts of a board would draw without its limit: rows by parts.

    Energy per byte and per operation are those of the whole device, whatever its limit, share or memory is set to, at
    the clock and the voltage of the target.

    Source: derived; activity of each unit times a constant, as in AccelWattch (MICRO'21), units as in the roofline.
    """
    stock = stock_of(target)
    limit_w, shares = board_w(stock), activity(target, stock, cases, time_s)
    scalar = dict(zip((one.name for one in SCALARS), values, strict=True))
    demand = np.stack([limit_w * scalar[f"{name}_ratio"] * shares[name] for name in PARTS], 1)
    demand[:, _CLOCKED] *= _drawn_ratio(top_ratio(target))
    return demand


def limited_w(demand: Any, limit_w: float) -> Any:
    """Return the parts as a board draws them that lowers its clock at its limit: those that depend on it shrink.

    Idle and busy power were fitted as constants, so that they shrink only where they exceed the limit by themselves.

    >>> limited_w(np.array([[250.0, 100.0, 400.0, 500.0, 0.0, 0.0, 100.0]]), 1000.0).sum().round()
    np.float64(989.0)
    """
    fixed, whole = demand[:, :2].sum(1), demand.sum(1)
    total = whole / (1 + (whole / limit_w) ** _SHARPNESS) ** (1 / _SHARPNESS)
    scale = np.clip((total - fixed) / np.maximum(whole - fixed, 1e-9), 0.0, 1.0)
    kept = np.minimum(total / np.maximum(fixed, 1e-9), 1.0)
    return np.concatenate([demand[:, :2] * kept[:, None], demand[:, 2:] * scale[:, None]], 1)


def power_w(target: Target, cases: CaseColumns, values: Any, time_s: Any) -> Any:
    """Return the average power by part, rows by parts, of cases that run one after the other without a pause."""
    return limited_w(demand_w(target, cases, values, time_s), board_w(target))


def clock_ratio(demand: Any, limit_w: float, top: float = 1.0) -> Any:
    """Return the share of its clock at which a board stays within its limit, row by row; 1 where it need not fall.

    Power falls with the clock and the square of a voltage that falls linearly to a floor; memory has a clock of its
    own.

    Args:
        demand: what the parts draw at the clock `top`, a share of the full one.

    >>> drawn = np.array([[200.0, 100.0, 0.0, products, 0.0, 0.0, 100.0] for products in (300.0, 900.0)])
    >>> clock_ratio(drawn, 1000.0).round(2)
    array([1.  , 0.88])
    """
    steady, clocked = demand[:, _STEADY].sum(1), demand[:, _CLOCKED].sum(1)
    left = np.clip((limit_w - steady) / np.maximum(clocked, 1e-9), 0.0, 1.0)
    clocks, drawn = _grid()
    found = np.interp(left * _drawn_ratio(top), drawn, clocks) / top
    return np.where(left == 1.0, 1.0, np.clip(found, LEAST_CLOCK_RATIO, 1.0))


def _drawn_ratio(clock: Any) -> Any:
    """Return what units draw at a share of the full clock, as a share of what they draw at the full one."""
    voltage = np.maximum(VOLTAGE_FLOOR_RATIO, VOLTAGE_AT_REST_RATIO + (1 - VOLTAGE_AT_REST_RATIO) * clock)
    return clock * voltage**2


@cache
def _grid() -> tuple[Any, Any]:
    """Return clocks, up to twice the full one, with what units draw at each."""
    clocks = np.linspace(0.0, 2.0, _GRID_COUNT)
    return clocks, _drawn_ratio(clocks)


@lru_cache(maxsize=256)
def power_calibration(device: str, dtype: str) -> Calibration:
    """Return the scalars of a device's power in one format: its own, or the ratios of the measured device."""
    for distance, stem in enumerate((device, "_prior")):
        for path in (user_folder() / "coefficients" / f"{stem}.toml", _FOLDER / f"{stem}.toml"):
            if path.exists():
                stored = read_coefficients(path)["groups"]
                for group in _groups("", {"dtype": dtype}):
                    if f"power.{group}" in stored:
                        name = f"{stem} power.{group}"
                        return calibration_of_group(
                            stored[f"power.{group}"], name, FORM, FAR_RATIO if distance else 1.0
                        )
    raise NotModelledError(f"{device}: no coefficients for power in {dtype}")


def _no_rows(target: Target, cases: CaseColumns, _scalars: Any, _setting: Setting) -> Rows:
    raise NotModelledError(f"{target.name}: power of {cases.op} follows from a time; use power_w")


FORM = Form(
    name="power", ops=(), version="power-2", scalars=SCALARS, terms=tuple(PARTS),
    regimes=dict.fromkeys(PARTS, "power"), groups=_groups, rows=_no_rows,
)  # fmt: skip
"""The scalars of power as calibrations and fits take them; power follows from a time, so it predicts no case."""
