"""Bridge measurements: one commit measured under two series keys, so that both series can be compared."""

from dataclasses import dataclass

from nearpeak.core.runs.paired_rounds import INCONCLUSIVE, Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """Two series of one case, joined where the key changed: another driver in the key, another way of timing."""

    old_series: int
    """Series under the old key."""
    new_series: int
    """Series under the new one."""
    sha: str
    """Commit that was measured under both."""
    verdict: str
    """Effect of the key on the time: `regression`, `improvement`, `invariant` or `inconclusive`."""
    time_ratio: float
    """Values under the new key over those under the old one."""
    low_ratio: float
    """Lower end of the interval."""
    high_ratio: float
    """Upper end."""
    launch_count: int
    """Launches that it rests on."""
    differences: tuple[tuple[str, str, str], ...]
    """What differs: component or part of the key, before, after; what the effect is put down to."""
    created_ns: int = 0
    """When it was kept; 0 before."""

    @property
    def joins(self) -> bool:
        """Say whether it is sure enough to read values of the old key under the new one."""
        return self.verdict != INCONCLUSIVE


def bridge_of(
    judgement: Judgement, series: tuple[int, int], sha: str, launch_count: int,
    differences: tuple[tuple[str, str, str], ...],
) -> Bridge:  # fmt: skip
    """Return the bridge from the first series to the second that a judgement on their launches states."""
    return Bridge(
        old_series=series[0], new_series=series[1], sha=sha, verdict=judgement.verdict,
        time_ratio=judgement.time_ratio, low_ratio=judgement.low_ratio, high_ratio=judgement.high_ratio,
        launch_count=launch_count, differences=differences,
    )  # fmt: skip
