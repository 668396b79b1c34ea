"""The farm under attack: workers killed at random, scheduler and dispatcher killed and started again."""

from collections.abc import Iterator

from benchmarks._farm import chaos
from benchmarks._figures import Figure

FIGURES = (
    "farm_jobs_lost", "farm_results_twice", "farm_device_overlaps", "farm_kills_survived", "farm_jobs_again",
)  # fmt: skip
JOBS, WORKERS, SEED = 500, 3, 0


def measure() -> Iterator[Figure]:
    """Yield what was lost, accepted twice or ran together, and how much was killed meanwhile."""
    found = chaos(JOBS, worker_count=WORKERS, seed=SEED, kill_every_count=20, restart_count=3, limit_s=1800.0)
    whole = found.accepted_count == JOBS and found.lost_count == 0
    yield Figure(
        name="farm_jobs_lost", value=JOBS - found.accepted_count, unit=f"of {JOBS} jobs", bar="0", passed=whole,
        seed=SEED,
    )  # fmt: skip
    yield Figure(
        name="farm_results_twice", value=found.twice_count, unit=f"of {JOBS} jobs", bar="0",
        passed=found.twice_count == 0, seed=SEED,
    )  # fmt: skip
    yield Figure(
        name="farm_device_overlaps", value=found.overlap_count, unit="times two on a device", bar="0",
        passed=found.overlap_count == 0, seed=SEED,
    )  # fmt: skip
    kills = found.kill_count + found.restart_count
    yield Figure(
        name="farm_kills_survived", value=kills, unit="kills", bar=">= 10, of them >= 1 of the scheduler",
        passed=kills >= 10 and found.restart_count >= 1, seed=SEED,
    )  # fmt: skip
    yield Figure(
        name="farm_jobs_again", value=found.again_count, unit="executions beyond the first", bar=">= 1: kills hit work",
        passed=found.again_count >= 1, seed=SEED,
    )  # fmt: skip
