"""Clients of a fleet as columns: parts of an expected round, powers, presence and random keys."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearpeak.core.federated.client_fleet import ClientCost, Fleet
from nearpeak.errors import SpecError
from nearpeak.systems.federated import keyed_draws as draws
from nearpeak.systems.federated.keyed_draws import Floats, Keys

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Columns of all clients; parts of a round are T = S/down + E·n·t + S/up."""

    keys: Keys
    """Random key of each client."""
    group: Ints
    """Group of each client."""
    sample_count: Ints
    """Samples."""
    sample_s: Floats
    """Time of a training sample."""
    epoch_count: int
    """Passes over the data in a round."""
    model_bytes: int
    """Bytes of a model that is sent in one direction."""
    down_s: Floats
    """Time of receiving the model."""
    up_s: Floats
    """Time of sending it back."""
    busy_w: Floats
    """Power while training; NaN where it is unknown."""
    idle_w: Floats
    """Power while waiting; NaN where it is unknown."""
    spread_ratio: Floats
    """Relative standard deviation of compute times."""
    trace_s: tuple[tuple[float, ...], ...]
    """By group: times present and absent in turn."""
    on_mean_s: Floats
    """Mean times present; NaN where there is a trace or none."""
    off_mean_s: Floats
    """Mean times absent."""

    @property
    def count(self) -> int:
        """Clients."""
        return len(self.keys)

    @property
    def compute_s(self) -> Floats:
        """Expected time of training in a round."""
        time_s: Floats = self.epoch_count * self.sample_count * self.sample_s
        return time_s

    @property
    def round_s(self) -> Floats:
        """Expected time of a round of each client alone.

        >>> clients(*example(), model_bytes=46_758_000).round_s.round(3).tolist()
        [9.881, 18.963, 45.406]
        """
        return self.down_s + self.compute_s + self.up_s

    def factors(self, seed: int, count: int) -> Floats | None:
        """Return what each client's compute time is multiplied with in its `count`-th round; none for no spread."""
        if not self.spread_ratio.any():
            return None
        return draws.log_normal(self.keys, seed, count, self.spread_ratio)


def clients(
    fleet: Fleet, costs: Mapping[str, ClientCost], *, model_bytes: int, end: str = "sample_s"
) -> Clients:  # fmt: skip
    """Return the columns of a fleet.

    Args:
        costs: time and power of each group by name.
        end: which time of a sample counts: `sample_s`, or `low_s` or `high_s` of its interval.
    """
    if model_bytes < 1:
        raise SpecError(f"fleet: a model of {model_bytes} bytes cannot be sent")
    counts = [group.client_count for group in fleet.groups]
    place = np.repeat(np.arange(len(counts)), counts)

    def column(values: list[float | None]) -> Floats:
        numbers: Floats = np.array([np.nan if value is None else value for value in values], np.float64)[place]
        return numbers

    chosen = [costs[group.name] for group in fleet.groups]
    return Clients(
        keys=draws.client_keys(tuple(group.name for group in fleet.groups), tuple(counts)), group=place,
        sample_count=np.array([group.sample_count for group in fleet.groups], np.int64)[place],
        sample_s=column([getattr(cost, end) for cost in chosen]), epoch_count=fleet.epoch_count,
        model_bytes=model_bytes, down_s=column([model_bytes / group.down_bytes_per_s for group in fleet.groups]),
        up_s=column([model_bytes / group.up_bytes_per_s for group in fleet.groups]),
        busy_w=column([cost.busy_w for cost in chosen]), idle_w=column([cost.idle_w for cost in chosen]),
        spread_ratio=column([group.spread_ratio for group in fleet.groups]),
        trace_s=tuple(group.presence_s for group in fleet.groups),
        on_mean_s=column([group.on_mean_s for group in fleet.groups]),
        off_mean_s=column([group.off_mean_s for group in fleet.groups]),
    )  # fmt: skip


def example() -> tuple[Fleet, dict[str, ClientCost]]:
    """Return three unlike clients with stated figures, whose rounds are known by hand.

    >>> fleet, costs = example()
    >>> fleet.epoch_count, [group.sample_count for group in fleet.groups], costs["fast"].busy_w
    (2, [600, 400, 200], 15.0)
    """
    from dataclasses import replace

    from nearpeak.core.federated.client_fleet import group_of

    rows = (("fast", 600, 2e-3, 12.5e6, 15.0, 5.0), ("middle", 400, 5e-3, 6.25e6, 10.0, 3.0),
            ("slow", 200, 2e-2, 2.5e6, 5.0, 2.0))  # fmt: skip
    groups = tuple(
        replace(group_of("board", sample_count=samples, rate_bytes_per_s=rate), name=name)
        for name, samples, _, rate, _, _ in rows
    )
    costs = {
        name: ClientCost(sample_s=time_s, low_s=time_s, high_s=time_s, busy_w=busy, idle_w=idle, source="stated")
        for name, _, time_s, _, busy, idle in rows
    }
    return Fleet(groups=groups, epoch_count=2), costs
