"""Hourly spot prices of many simulated runs: a mean-reverting logarithm, with hours above the bid."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.systems.training.goodput.failure_model import SpotMarket

HOUR_S = 3600.0


class PricePaths(NamedTuple):
    """Prices by run and hour."""

    next_closed: npt.NDArray[np.int64]
    """First hour from each on in which the price is above the bid; the number of hours for none."""
    next_open: npt.NDArray[np.int64]
    """First hour from each on in which it is not."""
    paid: npt.NDArray[np.float64]
    """Running sum of prices times hours, from 0."""

    def paid_until(self, runs: Any, time_s: Any) -> Any:
        """Return what a node that had run from the start would have paid at a time, in hours on demand."""
        hour = np.minimum((time_s / HOUR_S).astype(np.int64), self.paid.shape[1] - 2)
        part = time_s / HOUR_S - hour
        return self.paid[runs, hour] + part * (self.paid[runs, hour + 1] - self.paid[runs, hour])


def price_paths(market: SpotMarket | None, run_count: int, horizon_s: float, random: np.random.Generator) -> PricePaths:
    """Return the prices of all runs; without a market, the price on demand, always open."""
    hours = int(np.ceil(horizon_s / HOUR_S)) + 1
    price = np.ones((1 if market is None else run_count, hours))
    if market is not None:
        keep = np.exp(-HOUR_S / market.reversion_s)
        shocks = random.standard_normal((run_count, hours)) * market.sigma_ratio
        level = shocks[:, 0].copy()
        for hour in range(hours):
            level = shocks[:, 0] if hour == 0 else keep * level + np.sqrt(1 - keep**2) * shocks[:, hour]
            price[:, hour] = np.exp(level)
        price *= market.median_ratio
    is_closed = price > (np.inf if market is None else market.bid_ratio)
    runs = np.zeros((len(price), 1))
    paid = np.concatenate([runs, np.cumsum(price, axis=1)], axis=1)
    closed, opened = _next(is_closed), _next(~is_closed)
    return PricePaths(
        np.broadcast_to(closed, (run_count, hours)), np.broadcast_to(opened, (run_count, hours)),
        np.broadcast_to(paid, (run_count, hours + 1)),
    )  # fmt: skip


def _next(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return for each column the first one from it on that is set, or the number of columns."""
    count = flags.shape[1]
    places = np.where(flags, np.arange(count), count)
    return np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
