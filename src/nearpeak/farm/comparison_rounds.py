"""Interleaved A/B comparisons on the farm: A B B A rounds as batches, their verdict, and A/A checks of devices."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from nearpeak.base.canonical_json import digest
from nearpeak.core.runs.launch_pairs import BASELINE, CANDIDATE, Launch, LaunchJudgement
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.farm.device_registry import set_noise
from nearpeak.farm.job_queue import BATCH, JOB, RESULT
from nearpeak.farm.jobs import BatchRequest, JobRequest
from nearpeak.judgement.launch_verdict import MARGIN_RATIO, TURN, judged_launches
from nearpeak.store import Store
from nearpeak.store.sql_dialect import reading

AA = "aa:"
"""Prefix of the name of an A/A comparison, which measures the noise of a device."""
LEAST_ROUNDS = 3
"""Least rounds for an estimate of a device's noise."""
_Z = 1.96 + 1.645
"""Quantiles of a two-sided test at 5 % with 95 % power, as the detectable effect of `nearpeak gate` has them."""


def rounds(
    kind: str, arms: tuple[Mapping[str, Any], Mapping[str, Any]], count: int, *, key: str = "", **options: Any
) -> tuple[BatchRequest, ...]:
    """Return the batches of a comparison, one A B B A round of fresh processes under one lease each.

    Args:
        arms: payloads of baseline and candidate.
        options: of each batch: device, model, priority, owner, trigger.

    >>> [one.round for one in rounds("command", ({"words": ["a"]}, {"words": ["b"]}), 2)]
    [0, 1]
    """
    if count < 1:
        raise SpecError(f"--rounds {count}: must be at least 1")
    baseline, candidate = (dict(payload) for payload in arms)
    name = (AA if baseline == candidate else "") + digest([kind, baseline, candidate, key])[:24]
    payload = {BASELINE: baseline | {"arm": BASELINE}, CANDIDATE: candidate | {"arm": CANDIDATE}}
    return tuple(
        BatchRequest(
            jobs=tuple(
                JobRequest(kind=kind, payload=payload[arm], key=f"{name} {number} {place}")
                for place, arm in enumerate(TURN)
            ),
            pool="device", comparison=name, round=number, **options,
        )
        for number in range(count)
    )  # fmt: skip


def rounds_needed(noise_ratio: float, effect_ratio: float) -> int:
    """Return how many rounds it takes to see an effect, on a device whose rounds spread by `noise_ratio`.

    >>> rounds_needed(0.01, 0.01)
    13
    """
    if effect_ratio <= 0:
        raise SpecError(f"--effect {effect_ratio}: must be more than 0")
    return max(LEAST_ROUNDS, math.ceil((_Z * noise_ratio / effect_ratio) ** 2))


def check_effect(store: Store, device: str, effect_ratio: float, count: int) -> None:
    """Refuse a comparison with too few rounds to detect its effect.

    Raises:
        SpecError: with the number of launches that it takes on this device.
    """
    from nearpeak.farm.device_registry import devices

    known = [state for state in devices(store) if state.noise_ratio is not None and device in ("", state.device.name)]
    if not known:
        raise SpecError("--effect: no A/A comparison has shown how much a device scatters; submit one first")
    best = min(known, key=lambda state: state.noise_ratio or 0.0)
    needed = rounds_needed(best.noise_ratio or 0.0, effect_ratio)
    if needed > count:
        raise SpecError(
            f"--effect: {effect_ratio:.2%} on {best.device.name} needs {4 * needed} launches; "
            f"--rounds {count} gives {4 * count}"
        )


def launches_of(store: Store, comparison: str) -> tuple[tuple[Launch, ...], ...]:
    """Return the finished rounds of a comparison, each with its launches in order.

    Raises:
        NotFoundError: there is no such comparison.
    """
    query = (
        select(BATCH.c.round, BATCH.c.state, JOB.c.payload, JOB.c.state.label("job_state"), RESULT.c.result)
        .join_from(BATCH, JOB, JOB.c.job_batch_id == BATCH.c.id)
        .outerjoin(RESULT, RESULT.c.job_id == JOB.c.id)
        .where(BATCH.c.comparison == comparison)
        .order_by(BATCH.c.round, JOB.c.place)
    )
    with reading(store.engine, store.name) as connection:
        rows = connection.execute(query).all()
    if not rows:
        raise NotFoundError(
            f"comparison {comparison}: is not in the queue; 'nearpeak farm status --jobs' lists what is"
        )
    by_round: dict[int, list[Launch | None]] = {}
    for row in rows:
        by_round.setdefault(row.round, []).append(_launch(row))
    return tuple(tuple(launch for launch in each if launch) for each in by_round.values() if None not in each)


def _launch(row: Any) -> Launch | None:
    if row.job_state != "done" or row.result is None:
        return None
    result, arm = json.loads(row.result), json.loads(row.payload).get("arm", BASELINE)
    measurement = result.get("measurement")
    samples = measurement["samples_s"] if measurement else [result.get("time_s")]
    times = [sample for sample in samples if sample]
    return Launch(arm=arm, time_s=statistics.median(times)) if times else None


def verdict(store: Store, comparison: str, margin_ratio: float = MARGIN_RATIO) -> LaunchJudgement | None:
    """Return the verdict on the finished rounds; none where there are too few."""
    launches = [launch for each in launches_of(store, comparison) for launch in each]
    return judged_launches(launches, margin_ratio) if len(launches) >= 4 else None


def effects(launch_rounds: Sequence[Sequence[Launch]]) -> list[float]:
    """Return the logarithm of candidate over baseline in each round."""
    sides = [
        {
            arm: statistics.fmean(math.log(entry.time_s) for entry in each if entry.arm == arm)
            for arm in (BASELINE, CANDIDATE)
        }
        for each in launch_rounds
    ]
    return [entry[CANDIDATE] - entry[BASELINE] for entry in sides]


def note_noise(store: Store, comparison: str) -> float | None:
    """Store the spread of an A/A comparison's rounds as noise of its device; none for other comparisons."""
    if not comparison.startswith(AA):
        return None
    launch_rounds = launches_of(store, comparison)
    if len(launch_rounds) < LEAST_ROUNDS:
        return None
    spread = statistics.stdev(effects(launch_rounds))
    with reading(store.engine, store.name) as connection:
        query = select(BATCH.c.held_by).where(BATCH.c.comparison == comparison, BATCH.c.state == "done")
        device = connection.execute(query).scalars().first()
    if device:
        set_noise(store, device, spread)
    return spread
