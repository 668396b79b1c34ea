"""Series replayed commit by commit, with suspects measured again in turns: delays and false alerts, end to end."""

from dataclasses import dataclass

import numpy as np

from benchmarks._launches import CLOCK_HZ
from benchmarks._series import Values, noise, one_step
from nearpeak.analyze.changes import changes
from nearpeak.analyze.launches import TURN, compared_in_looks
from nearpeak.analyze.online import BEFORE_VALUES, followed, measured_again, wants_measuring
from nearpeak.core.launches import CANDIDATE, Launch
from nearpeak.core.tracked import PROVED, Tracked

COMMITS, WARM_UP = 160, 40
FAMILIES = ("quiet", "skewed", "bimodal", "mixed", "realgpu")
CLOCKED = {"bimodal": 2.0, "mixed": 1.2}
"""Families whose second state is a slower clock, which launches know, and by how many percent."""
ALPHABET = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What happened to one series."""

    changes: tuple[int, ...]
    """Planted changes."""
    suspects: tuple[tuple[int, int], ...]
    """Place of each suspect and the newest commit when it was first seen."""
    alerts: tuple[tuple[int, int], ...]
    """Place of each change that new measurements proved, and the newest commit then."""
    launches: int
    """Launches that were bought."""


def replayed(family: str, size_ratio: float, seed: int) -> Replay:
    """Return what the protocol does with one series, a commit at a time."""
    values, planted = one_step(family, size_ratio, seed, COMMITS)
    rng = np.random.default_rng((seed, FAMILIES.index(family), round(1000 * size_ratio)))
    level = np.ones(COMMITS)
    for change in planted:
        level[change:] *= 1 + size_ratio
    tracked: tuple[Tracked, ...] = ()
    alerts: list[tuple[int, int]] = []
    bought = 0
    for newest in range(WARM_UP, COMMITS):
        tracked = followed(tracked, changes(values[: newest + 1]), newest)
        for i, one in enumerate(tracked):
            if newest == WARM_UP or not wants_measuring(one):
                continue
            pair = level[max(0, one.point.index - BEFORE_VALUES)], level[newest]
            verdict, count = _measured(family, pair, rng)
            bought += count
            seen = measured_again(one, verdict)
            tracked = (*tracked[:i], seen, *tracked[i + 1 :])
            if seen.measured == PROVED:
                alerts.append((one.point.index, newest))
    suspects = tuple((one.point.index, one.first_seen_index) for one in tracked if one.first_seen_index > WARM_UP)
    return Replay(changes=planted, suspects=suspects, alerts=tuple(alerts), launches=bought)


def _measured(family: str, levels: tuple[float, float], rng: np.random.Generator) -> tuple[str, int]:
    """Return the verdict of new launches of the good and the bad commit, and how many it took."""
    # Launches minutes apart share neither drift nor the memory between nightly runs, but each has the family's spread.
    pool, states = _pool(family, rng)
    taken = 0

    def one_round() -> list[Launch]:
        nonlocal taken
        found = []
        for arm in TURN:
            i = int(rng.integers(len(pool)))
            level = levels[1] if arm == CANDIDATE else levels[0]
            clock = CLOCK_HZ * np.exp(-states[i] / 100) if family in CLOCKED else None
            found.append(Launch(arm=arm, time_s=float(1e-4 * level * np.exp(pool[i] / 100)), clock_hz=clock))
        taken += len(found)
        return found

    return compared_in_looks(one_round).judgement.verdict, taken


def _pool(family: str, rng: np.random.Generator) -> tuple[Values, Values]:
    """Return deviations of single launches in percent, and how much of each is a slower clock."""
    if family not in CLOCKED:
        return noise(family, ALPHABET, rng), np.zeros(ALPHABET)
    states = np.where(rng.random(ALPHABET) < 1 / 3, CLOCKED[family], 0.0)
    base = noise("quiet" if family == "bimodal" else "autocorr", ALPHABET, rng)
    return base + states, states


def delay(replay: Replay, found: tuple[tuple[int, int], ...]) -> int | None:
    """Return after how many commits the planted change was first told (1: on the first bad one); none if it was not."""
    change = replay.changes[0]
    seen = [newest - change + 1 for index, newest in found if abs(index - change) <= 2 and newest - change < 30]
    return min(seen) if seen else None
