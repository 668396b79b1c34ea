"""Plan of a data loader: epochs by number of workers, where compute begins to limit, and what each remedy gains."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nearpeak.core.edge.loader_answer import LoadedEpoch, LoaderAnswer, LoaderCase, LoaderRow, Remedy, Replayed
from nearpeak.systems.edge.loader_queue import loaded_epoch, replayed_epoch
from nearpeak.systems.edge.page_cache import cache_ratio_of, hit_ratio

MOST_WORKERS = 256
"""Workers up to which the number is looked for at which compute limits."""
MOST_REPLAYED = 1_000_000
"""Items of which the times of one epoch are drawn."""
_HALVINGS = 60


def plan_loader(
    case: LoaderCase, workers: Sequence[int], *, item_times_s: Sequence[float] = (), seed: int = 0,
    notes: Sequence[str] = (),
) -> LoaderAnswer:  # fmt: skip
    """Return what a loader lets an epoch take with each number of workers, and what to change.

    Args:
        item_times_s: recorded times of single items, from which the items of a replayed epoch are drawn, scaled so that
            their mean is that of the case; none for no replay.

    >>> case = LoaderCase(file_count=1600, file_bytes=1e3, batch=16, compute_s=0.01, prep_s=0.03 / 16,
    ...                   read_bytes_per_s=1e12, ram_bytes=1e9)
    >>> answer = plan_loader(case, (0, 1, 2, 4))
    >>> [round(row.later.epoch_s, 3) for row in answer.rows], answer.enough_worker_count
    ([4.0, 3.01, 1.52, 1.03], 3)
    """
    hits = hit_ratio(case.cache_ratio, case.order, case.replacement)
    rows = tuple(
        LoaderRow(
            first=loaded_epoch(case, count, 1.0), later=loaded_epoch(case, count, 1 - hits),
            enough_ram_bytes=_enough_ram_bytes(case, count),
        )
        for count in workers
    )  # fmt: skip
    enough, why_not = _enough_workers(case, 1 - hits)
    answer = LoaderAnswer(
        case=case,
        hit_ratio=hits,
        rows=rows,
        enough_worker_count=enough,
        why_not=why_not,
        remedies=(),
        notes=tuple(notes),
    )
    later = answer.best.later
    ordered = sorted(_remedies(case, later, 1 - hits, enough), key=lambda remedy: -remedy.gain_s)
    replays = tuple(_replay(case, count, 1 - hits, item_times_s, seed) for count in workers if len(item_times_s))
    return replace(answer, remedies=tuple(ordered), replays=replays)


def _enough_workers(case: LoaderCase, miss_ratio: float) -> tuple[int | None, str]:
    """Return the first number of workers with which compute limits, or what limits with any number."""
    last = loaded_epoch(case, MOST_WORKERS, miss_ratio)
    if last.limiter != "compute":
        return None, last.limiter
    low, high = 0, MOST_WORKERS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if loaded_epoch(case, middle, miss_ratio).limiter == "compute" else (middle, high)
    return high, ""


def _enough_ram_bytes(case: LoaderCase, workers: int) -> float:
    """Return the least page cache with which an epoch takes as long as with all files in memory, to 0.1 %.

    The largest share of misses m that storage hides is found first; the cache is then the c with h(c) = 1 − m.
    """
    wanted_s = 1.001 * loaded_epoch(case, workers, 0.0).batch_s
    low, high = 0.0, 1.0
    if loaded_epoch(case, workers, high).batch_s <= wanted_s:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loaded_epoch(case, workers, middle).batch_s <= wanted_s else (low, middle)
    return cache_ratio_of(1 - low, case.order, case.replacement) * case.data_bytes


def _remedies(case: LoaderCase, later: LoadedEpoch, miss_ratio: float, enough: int | None) -> Iterator[Remedy]:
    """Yield the changes that shorten a later epoch."""
    now, minio = later.worker_count, 1 - hit_ratio(case.cache_ratio, case.order, "minio")
    if enough is not None and enough > now:
        yield from _remedy(f"{enough} workers", "t_f / w ≤ t_c", later, loaded_epoch(case, enough, miss_ratio))
    if case.replacement != "minio":
        words = "hits c instead of " + ("0" if case.order == "same" else "c + (1 − c) ln(1 − c)")
        yield from _remedy("a cache that keeps what it has (MinIO)", words, later, loaded_epoch(case, now, minio))
    yield from _remedy("all files in memory", "hits 1", later, loaded_epoch(case, now, 0.0))
    changes = (
        ("storage twice as fast", "batch · bytes · misses / (2 R)", {"read_bytes_per_s": 2 * case.read_bytes_per_s}),
        ("half the bytes per file", "c′ = 2 c, batch · bytes / 2 / R", {"file_bytes": case.file_bytes / 2}),
        ("preparation in half the time", "batch · prep / 2 / w", {"prep_s": case.prep_s / 2}),
        ("preparation ahead of training", "prep = 0", {"prep_s": 0.0}),
    )
    for name, formula, change in changes:
        other = replace(case, **change)  # type: ignore[arg-type]
        misses = 1 - hit_ratio(other.cache_ratio, other.order, other.replacement)
        yield from _remedy(name, formula, later, loaded_epoch(other, now, misses))


def _remedy(name: str, formula: str, before: LoadedEpoch, after: LoadedEpoch) -> Iterator[Remedy]:
    """Yield a change where it saves at least a hundredth of the epoch."""
    gain_s = before.epoch_s - after.epoch_s
    if gain_s > 0.01 * before.epoch_s:
        yield Remedy(name=name, formula=formula, epoch_s=after.epoch_s, gain_s=gain_s)


def _replay(
    case: LoaderCase, workers: int, miss_ratio: float, item_times_s: Sequence[float], seed: int
) -> Replayed:  # fmt: skip
    """Return an epoch whose items are drawn from recorded ones; the means are those of the case."""
    draw, mean_s = random.Random(seed), math.fsum(item_times_s) / len(item_times_s)
    count = min(case.batch_count, max(1, MOST_REPLAYED // case.batch))
    item_s = case.prep_s + case.file_bytes * miss_ratio / case.read_bytes_per_s
    factor = item_s / mean_s if mean_s else 0.0
    fetch_s = [factor * math.fsum(draw.choices(item_times_s, k=case.batch)) for _ in range(count)]
    step_s = case.compute_s + case.copy_s + (case.hand_over_s if workers else 0.0)
    return replayed_epoch(fetch_s, [step_s] * count, workers, case.prefetch_count)
