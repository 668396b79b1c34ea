"""Queue of a data loader with worker processes: epoch time in closed form, and replay of times that differ."""

from collections.abc import Sequence

from nearpeak.core.edge.loader_answer import LoadedEpoch, LoaderCase, Replayed
from nearpeak.errors import SpecError


def constant_epoch_s(batch_count: int, fetch_s: float, compute_s: float, workers: int) -> float:
    """Return the time of an epoch in which every batch takes as long to fetch and to compute.

    Batch i is fetched by worker i mod w, and delivered in order; index i + w·p is issued when batch i is taken, so that
    the result is the same for every p of at least 1. Without workers n (t_f + t_c). Else compute limits where
    t_f ≤ w·t_c: t_f + n·t_c; and fetching where it is longer: the workers deliver ⌈n/w⌉ waves, and the batches of the
    last, of which there are r, are computed after it: ⌈n/w⌉ t_f + r·t_c.

    Raises:
        SpecError: a number is below 0, or there are no batches.

    >>> [round(constant_epoch_s(100, 0.030, 0.010, workers), 6) for workers in (0, 1, 2, 4, 3)]
    [4.0, 3.01, 1.52, 1.03, 1.03]
    >>> round(constant_epoch_s(1000, 0.012, 0.010, 1), 6)
    12.01
    """
    if batch_count < 1 or workers < 0 or fetch_s < 0 or compute_s < 0:
        raise SpecError(
            f"loader: {batch_count} batches, {workers} workers, {fetch_s:g} s, {compute_s:g} s; give at least 1 batch, "
            "and nothing below 0"
        )
    if workers == 0:
        return batch_count * (fetch_s + compute_s)
    if fetch_s <= workers * compute_s:
        return fetch_s + batch_count * compute_s
    waves = -(-batch_count // workers)
    return waves * fetch_s + (batch_count - (waves - 1) * workers) * compute_s


def replayed_epoch(
    fetch_s: Sequence[float], compute_s: Sequence[float], workers: int, prefetch: int = 2
) -> Replayed:  # fmt: skip
    """Return an epoch with the times of each batch, in PyTorch's order of issue and delivery.

    Args:
        fetch_s: time that the worker of each batch takes.
        compute_s: time of the trainer with each batch.
        prefetch: batches asked of each worker ahead.

    Raises:
        SpecError: the times are not of equally many batches.

    >>> replayed_epoch([0.03] * 100, [0.01] * 100, 2).epoch_s
    1.52
    >>> round(replayed_epoch([0.09] + [0.01] * 5, [0.01] * 6, 2).head_of_line_s, 6)  # the first batch holds up five
    0.08
    """
    if len(fetch_s) != len(compute_s) or not len(fetch_s):
        raise SpecError(f"loader: {len(fetch_s)} times of fetching, {len(compute_s)} of compute; give one per batch")
    if workers == 0:
        waited_s = sum(fetch_s)
        return Replayed(worker_count=0, epoch_s=waited_s + sum(compute_s), stall_s=waited_s, head_of_line_s=0.0)
    ready_s, waits, done_s = list[float](), list[tuple[float, float]](), 0.0
    free_s, ahead = [0.0] * workers, workers * prefetch
    for place, (fetch, compute) in enumerate(zip(fetch_s, compute_s, strict=True)):
        issued_s = waits[place - ahead][1] if place >= ahead else 0.0
        ready_s.append(max(issued_s, free_s[place % workers]) + fetch)
        free_s[place % workers] = ready_s[-1]
        waits.append((done_s, max(ready_s[-1], done_s)))
        done_s = waits[-1][1] + compute
    return Replayed(
        worker_count=workers, epoch_s=round(done_s, 12), head_of_line_s=round(_head_of_line_s(ready_s, waits), 12),
        stall_s=round(sum(end_s - begin_s for begin_s, end_s in waits), 12),
    )  # fmt: skip


def _head_of_line_s(ready_s: Sequence[float], waits: Sequence[tuple[float, float]]) -> float:
    """Return the time in which the trainer waits while a later batch is ready."""
    soonest_s, total_s = float("inf"), 0.0
    for place in range(len(ready_s) - 1, -1, -1):
        begin_s, end_s = waits[place]
        total_s += max(0.0, end_s - max(begin_s, soonest_s))
        soonest_s = min(soonest_s, ready_s[place])
    return total_s


def loaded_epoch(case: LoaderCase, workers: int, miss_ratio: float) -> LoadedEpoch:
    """Return an epoch whose reads miss the page cache in the share `miss_ratio`.

    The time between batches is the longest of four: compute with copies; what a worker takes for a batch over the
    workers; bytes that miss over the rate of the storage; work of all cores over their number.
    """
    step_s = case.compute_s + case.copy_s
    store_s = case.batch * case.file_bytes * miss_ratio / case.read_bytes_per_s
    prep_s = case.batch * case.prep_s
    if workers == 0:
        batch_s = step_s + prep_s + store_s
        limiter = max((("storage", store_s), ("preparation", prep_s), ("compute", step_s)), key=lambda part: part[1])[0]
        return LoadedEpoch(
            worker_count=0, epoch_s=case.batch_count * batch_s, batch_s=batch_s, compute_s=case.compute_s,
            copy_s=case.copy_s, prep_s=prep_s, storage_s=store_s, start_s=0.0, limiter=limiter,
            batch_count=case.batch_count,
        )  # fmt: skip
    step_s += case.hand_over_s
    fetch_s, start_s = prep_s + case.send_s + store_s, case.start_once_s + case.start_s * workers
    batch_s, limiter = _period(case, workers, store_s)
    cached_s, _ = _period(case, workers, 0.0)
    epoch_s = fetch_s + case.batch_count * batch_s
    if batch_s == fetch_s / workers:  # the exact count of waves
        epoch_s = constant_epoch_s(case.batch_count, fetch_s, step_s, workers)
    return LoadedEpoch(
        worker_count=workers, epoch_s=start_s + epoch_s, batch_s=batch_s, compute_s=case.compute_s,
        copy_s=case.copy_s + case.hand_over_s, prep_s=cached_s - step_s, storage_s=batch_s - cached_s,
        start_s=start_s + epoch_s - case.batch_count * batch_s, limiter=limiter, batch_count=case.batch_count,
    )  # fmt: skip


def _period(case: LoaderCase, workers: int, store_s: float) -> tuple[float, str]:
    """Return the time between two batches, and what sets it."""
    step_s, prep_s = case.compute_s + case.copy_s + case.hand_over_s, case.batch * case.prep_s + case.send_s
    slower = "storage" if store_s > prep_s else "preparation"
    limits = [(step_s, "compute"), ((prep_s + store_s) / workers, slower), (store_s, "storage")]
    if case.core_count:
        busy_s = prep_s + (step_s if case.is_compute_on_cores else 0.0)
        limits.append((busy_s / case.core_count, "cores"))
    return max(limits, key=lambda limit: limit[0])
