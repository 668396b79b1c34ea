"""Failures of a job's devices, costs of saving and coming back, and policies that answer a failure."""

from dataclasses import dataclass
from math import exp, log

from nearpeak.errors import SpecError

DEVICE_HOURS = 50_700.0
"""Device hours per unexpected interruption: 419 of them in 54 days on 16,384 H100 (Grattafiori et al. 2024, 'The Llama
3 herd of models', arXiv:2407.21783, section 3.3.4 and table 5)."""
HARDWARE_RATIO = 0.78
"""Share of unexpected interruptions with confirmed or suspected hardware causes (same section)."""
SPREAD_RATIO = 3.0
"""P90 over median of the failure rate between clusters: an assumption of nearpeak for clusters without a record."""
NORMAL_P90 = 1.2815515655446004
"""90 % quantile of the standard normal distribution."""
LLAMA_SOURCE = (
    "Llama 3 report (arXiv:2407.21783, table 5): 419 interruptions in 54 days on 16,384 H100; factor 3 at P90"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModel:
    """How often a job of a given size fails, and what a failure takes away."""

    failure_interval_s: float
    """Median time between failures of the whole job at full size."""
    spread_ratio: float = 1.0
    """P90 over median of the failure rate, drawn once per run from a log-normal distribution; 1 for a known rate."""
    hardware_ratio: float = HARDWARE_RATIO
    """Share of failures that take a node out until it is repaired."""
    foreseen_ratio: float = 0.0
    """Share of failures that monitoring announces early enough to move the work away without loss."""
    repair_s: float = 0.0
    """Time until a broken node is back as a spare."""
    source: str = "stated by the caller"
    """Where the rate comes from."""

    def __post_init__(self) -> None:
        """Refuse rates and shares that no cluster has."""
        if self.failure_interval_s <= 0 or self.repair_s < 0 or self.spread_ratio < 1:
            raise SpecError(
                f"failures: mean time between failures {self.failure_interval_s:g} s must be above 0, repair time "
                f"{self.repair_s:g} s at least 0, spread {self.spread_ratio:g} at least 1"
            )
        if not (0 <= self.hardware_ratio <= 1 and 0 <= self.foreseen_ratio <= 1):
            raise SpecError("failures: hardware_ratio and foreseen_ratio are shares from 0 to 1")

    @property
    def log_sigma_ratio(self) -> float:
        """Standard deviation of the logarithm of the failure rate."""
        return log(self.spread_ratio) / NORMAL_P90


def prior_failures(device_count: int, repair_s: float = 0.0) -> FailureModel:
    """Return the failure rate of a cluster without a record of its own, from the Llama 3 report.

    >>> round(prior_failures(16_384).failure_interval_s / 3600, 1)
    3.1
    """
    if device_count < 1:
        raise SpecError(f"failures: {device_count} devices; at least 1 is needed")
    return FailureModel(
        failure_interval_s=DEVICE_HOURS * 3600 / device_count, spread_ratio=SPREAD_RATIO, repair_s=repair_s,
        source=LLAMA_SOURCE,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """What saving a checkpoint costs; all times can be measured with the user's own script."""

    blocking_s: float
    """Time for which training stops."""
    background_s: float = 0.0
    """Time after that until the checkpoint is durable, while training goes on."""
    contention_ratio: float = 0.0
    """Share of training speed lost while the background part runs."""

    def __post_init__(self) -> None:
        """Refuse negative times."""
        if self.blocking_s <= 0 or self.background_s < 0 or not 0 <= self.contention_ratio <= 1:
            raise SpecError(
                f"checkpoint: blocking time {self.blocking_s:g} s must be above 0, background time "
                f"{self.background_s:g} s at least 0, contention {self.contention_ratio:g} from 0 to 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCheckpoint:
    """A second, frequent checkpoint in the memory of other nodes (Wang et al. 2023, 'Gemini', SOSP)."""

    interval_s: float
    """Time between two of them."""
    blocking_s: float
    """Time for which training stops for each."""
    restart_s: float
    """Detection, rescheduling and loading from a peer's memory."""
    loss_ratio: float = 0.0
    """Share of failures that also destroy the peer's copy, after which the durable checkpoint is loaded."""

    def __post_init__(self) -> None:
        """Refuse times and shares that cannot be."""
        if self.interval_s <= 0 or self.blocking_s < 0 or self.restart_s < 0 or not 0 <= self.loss_ratio <= 1:
            raise SpecError("peer checkpoint: interval_s must be above 0, times at least 0, loss_ratio from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPolicy:
    """What a job does when nodes break: take spares, go on smaller, move away in time."""

    spare_count: int = 0
    """Nodes that wait to replace broken ones."""
    rates_ratio: tuple[float, ...] = (1.0,)
    """Step rate, over the full one, with 0, 1, 2 … nodes missing beyond the spares; with more missing the job waits."""
    reshape_s: float = 0.0
    """Time to come back at another size when a node returns, after a checkpoint."""
    migrate_s: float = 0.0
    """Time to move the work of a node whose failure is foreseen."""
    peer: PeerCheckpoint | None = None
    """Checkpoints in the memory of peers."""

    def __post_init__(self) -> None:
        """Refuse rates that rise with missing nodes."""
        rates = self.rates_ratio
        if not rates or list(rates) != sorted(rates, reverse=True) or not 0 <= rates[-1] <= rates[0] <= 1:
            raise SpecError(f"elastic policy: step rates {rates} must fall from at most 1 with every missing node")
        if self.spare_count < 0 or self.reshape_s < 0 or self.migrate_s < 0:
            raise SpecError("elastic policy: spare_count, reshape_s and migrate_s must be at least 0")


def shrink_rates(replica_count: int, least_replicas: int = 1) -> tuple[float, ...]:
    """Return the step rates of a job that drops a data-parallel replica for every missing node, the batch unchanged.

    >>> shrink_rates(4, 2)
    (1.0, 0.75, 0.5)
    """
    if not 1 <= least_replicas <= replica_count:
        raise SpecError(f"elastic policy: {least_replicas} of {replica_count} replicas is no size to shrink to")
    return tuple((replica_count - lost) / replica_count for lost in range(replica_count - least_replicas + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMarket:
    """Prices and reclaims of preemptible capacity, over the price on demand."""

    price_ratio: float
    """Mean spot price."""
    bid_ratio: float
    """Highest price at which the job runs."""
    sigma_ratio: float
    """Standard deviation of the logarithm of the price."""
    reversion_s: float
    """Time in which the logarithm of the price returns to its mean by a factor e."""
    notice_s: float = 0.0
    """Warning before capacity is taken; with one longer than a blocking checkpoint nothing is lost."""
    reclaim_interval_s: float = float("inf")
    """Mean time between reclaims of capacity from the job whatever the price."""
    wait_s: float = 0.0
    """Time until capacity is back after such a reclaim."""

    def __post_init__(self) -> None:
        """Refuse prices and times that cannot be."""
        if min(self.price_ratio, self.bid_ratio, self.reversion_s, self.reclaim_interval_s) <= 0 or min(
            self.sigma_ratio, self.notice_s, self.wait_s
        ) < 0:  # fmt: skip
            raise SpecError(
                "spot market: price_ratio, bid_ratio, reversion_s and reclaim_interval_s must be above 0, sigma_ratio, "
                "notice_s and wait_s at least 0"
            )

    @property
    def median_ratio(self) -> float:
        """Median of the spot price."""
        return self.price_ratio * exp(-(self.sigma_ratio**2) / 2)
