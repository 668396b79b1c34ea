"""Coefficients of the engine model, and the boards and figures behind them."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from nearpeak.core.work.target import Target
from nearpeak.prediction.documented_target import stock_of

FILE = Path(__file__).with_name("jetson_tensorrt.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCoefficients:
    """What kernels of an engine reach on a board, and what their starts cost."""

    int8_ratio: float
    """Reached share of the documented rate of 8-bit products by tiles without losses at their borders."""
    fp16_ratio: float
    """The same of products in 16 bits."""
    fp32_ratio: float
    """The same of products in TF32, or of fp32 where a board has none."""
    dram_ratio: float
    """Reached share of the memory rate."""
    depth_count: float
    """Channels times taps that start and end of a tile cost, of 32 bits."""
    edge_count: float
    """Cost of small tiles, as a wider edge."""
    depthwise_ratio: float
    """Reached share of the vector rate of depthwise convolutions."""
    grouped_ratio: float
    """Reached share, of that of plain convolutions, where groups have several channels."""
    start_clock_count: float
    """Clocks of the device from one kernel to the next within a graph."""
    submit_s: float
    """Time that a host of such a board adds to each kernel that it submits one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCalibration:
    """Fitted coefficients with their interval and source."""

    coefficients: EngineCoefficients
    """The coefficients."""
    interval_ratio: float
    """Factor that nine of ten held-out figures lie within, on boards that were fitted."""
    far_ratio: float
    """The same on other boards: an assumption."""
    boards: tuple[str, ...]
    """Targets with figures behind the coefficients."""
    row_count: int
    """Figures behind the coefficients."""
    source: str
    """Where the figures are published."""

    def ratio_of(self, target: Target) -> float:
        """Return the factor of the 90 % interval on a board."""
        return self.far_ratio if self.distance_of(target) else self.interval_ratio

    def distance_of(self, target: Target) -> int:
        """Return the steps from the data: 0 for a fitted board, 2 for others."""
        return 0 if stock_of(target).name in self.boards else 2


@cache
def engine_calibration() -> EngineCalibration:
    """Return the calibration of TensorRT on Jetson boards.

    >>> engine_calibration().coefficients.dram_ratio < 1
    True
    """
    raw = tomllib.loads(FILE.read_text(encoding="utf-8"))
    values = {item.name: float(raw["coefficients"][item.name]) for item in fields(EngineCoefficients)}
    return EngineCalibration(
        coefficients=EngineCoefficients(**values), interval_ratio=raw["interval_ratio"], far_ratio=raw["far_ratio"],
        boards=tuple(raw["boards"]), row_count=raw["row_count"], source=raw["source"],
    )  # fmt: skip


def has_engine_model(target: Target) -> bool:
    """Return whether the model answers for a target: an NVIDIA board whose memory rate is stated.

    >>> from nearpeak.targets import target_of
    >>> has_engine_model(target_of("jetson_orin_nano:15W")), has_engine_model(target_of("h100_sxm"))
    (True, False)
    """
    return is_jetson(target) and target.dram.bandwidth_bytes_per_s is not None


def is_jetson(target: Target) -> bool:
    """Return whether a target is an NVIDIA board of the Jetson kind, in whatever power mode.

    >>> from nearpeak.targets import target_of
    >>> is_jetson(target_of("jetson_orin_nano:15W")), is_jetson(target_of("l4"))
    (True, False)
    """
    return stock_of(target).name.startswith("jetson_")
