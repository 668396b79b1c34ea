"""Change points commit by commit, with suspects measured again in turns: delay and false alerts from end to end."""

import statistics
from collections.abc import Iterator

from benchmarks._figures import Figure
from benchmarks._replay import COMMITS, FAMILIES, WARM_UP, delay, replayed
from benchmarks._series import SIZES

FIGURES = ("online_delay_5", "online_found_2", "online_found_5", "online_false_alerts", "online_suspects")
SEEDS, NULL_SEEDS = range(1000, 1008), range(1000, 1030)


def measure() -> Iterator[Figure]:
    """Yield delay and share found by size, then alerts and suspects where nothing changes."""
    for size in SIZES[1:3]:
        delays = [delay(one, one.alerts) for one in (replayed(f, size, seed) for f in FAMILIES for seed in SEEDS)]
        told = [one for one in delays if one is not None]
        share, least = 100 * len(told) / len(delays), {0.02: 0, 0.05: 90}[size]
        yield _figure(
            f"online_found_{size:.0%}".rstrip("%"), share, "%", f">= {least} %" if least else "", share >= least
        )
        if size == 0.05:
            median = statistics.median(30 if one is None else one for one in delays)
            yield _figure("online_delay_5", median, "commits", "<= 3 in the median, missed ones as 30", median <= 3)
    still = [replayed(family, 0.0, seed) for family in FAMILIES for seed in NULL_SEEDS]
    hundreds = len(still) * (COMMITS - WARM_UP) / 100
    alerts = sum(len(one.alerts) for one in still) / hundreds
    yield _figure("online_false_alerts", alerts, "per 100 commits", "<= 0.02 for each series", alerts <= 0.02)
    suspects = sum(len(one.suspects) for one in still) / hundreds
    yield _figure("online_suspects", suspects, "per 100 commits", "", True)


def _figure(name: str, value: float, unit: str, bar: str, passed: bool) -> Figure:
    return Figure(name=name, value=value, unit=unit, bar=bar, passed=passed, seed=SEEDS.start)
