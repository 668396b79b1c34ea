"""Times of collectives over gloo on this machine, and the fabric that fits them."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from nearpeak.base.host_system import cpu_name
from nearpeak.core.systems.fabric import Fabric, Tier, TransferFit
from nearpeak.errors import MeasureError
from nearpeak.measurement.machine.gloo_ranks import run_ranks

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
SIZES = (2**8, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24)
"""Bytes of the whole messages."""
BUDGET_S = 0.25
"""Time that each kind and size may take."""
ROUND_COUNT = 3
"""Times that all kinds and sizes are gone through, so that a busy moment does not hit one of them alone."""
WORK_EXTENT, WORK_COUNT = 256, 3
"""Extent and number of the products before each repetition, 1 to 3 ms."""
KEPT_RATIO = 0.95
"""Share of the repetitions that a mean is of; the slowest met an interruption of the machine."""
_LEAST_COUNT, _MOST_COUNT = 4, 100
_WARM_COUNT = 2
_WEIGHING_COUNT = 8


class Sample(NamedTuple):
    """Times of one kind of collective at one size."""

    kind: str
    """Collective."""
    rank_count: int
    """Ranks."""
    size_bytes: int
    """Whole message."""
    times_s: tuple[float, ...]
    """Time of each repetition: that of the slowest rank."""

    @property
    def typical_s(self) -> float:
        """Mean time, which adds up over the parts of a step as quantiles do not."""
        return kept_mean(self.times_s)


def measure_collectives(
    rank_counts: Sequence[int], kinds: Sequence[str] = KINDS, sizes: Sequence[int] = SIZES, budget_s: float = BUDGET_S
) -> tuple[Sample, ...]:
    """Measure collectives among own processes over gloo on the loopback interface.

    Kinds that this build of gloo lacks are left out.

    Raises:
        MeasureError: a process failed, or no kind could be measured.
    """
    samples: list[Sample] = []
    for count in rank_counts:
        by_rank = run_ranks(timed_collectives, count, tuple(kinds), tuple(sizes), budget_s)
        samples += joined_samples(by_rank)
    if not samples:
        raise MeasureError(f"gloo of this PyTorch has none of {', '.join(kinds)}")
    return tuple(samples)


def kept_mean(times_s: Sequence[float]) -> float:
    """Return the mean of all times but the slowest.

    >>> kept_mean([1.0] * 19 + [100.0])
    1.0
    """
    return float(np.mean(np.sort(times_s)[: max(round(len(times_s) * KEPT_RATIO), 1)]))


def joined_samples(by_rank: Sequence[Mapping[tuple[str, int], list[tuple[float, float]]]]) -> list[Sample]:
    """Return the times of collectives from the start of the last rank to the end of the last one.

    Processes of one machine read one clock. Only two ranks take part in a send.

    >>> spans = [{("send", 8): [(0.0, 1.0)]}, {("send", 8): [(0.5, 2.0)]}]
    >>> joined_samples(spans)[0].times_s
    (1.5,)
    """
    samples = []
    for kind, size in by_rank[0]:
        spans = np.array([times[kind, size] for times in (by_rank[:2] if kind == "send" else by_rank)])
        times_s = spans[:, :, 1].max(0) - spans[:, :, 0].max(0)
        samples.append(Sample(kind, len(by_rank), size, tuple(map(float, times_s))))
    return samples


def timed_collectives(
    rank: int, rank_count: int, kinds: Sequence[str], sizes: Sequence[int], budget_s: float
) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return start and end of each kind and size on one rank; all ranks repeat equally often."""
    calls = {}
    for kind in kinds:
        try:
            for size in sizes:
                call = _call(kind, size, rank, rank_count)
                for _ in range(_WARM_COUNT):
                    call()
                calls[kind, size] = (call, _repeats(call, budget_s / ROUND_COUNT))
        except (RuntimeError, NotImplementedError):
            continue  # a kind that gloo lacks; all ranks leave it out
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {key: [] for key in calls}
    for _ in range(ROUND_COUNT):
        for (kind, size), (call, repeats) in calls.items():
            spans[kind, size] += _spans(call, repeats)
    return spans


def _repeats(call: Callable[[], None], budget_s: float) -> int:
    """Return how often a call is repeated in a round, the same number on all ranks."""
    import torch

    started = time.perf_counter()
    call()
    each_s = torch.tensor(time.perf_counter() - started)
    torch.distributed.all_reduce(each_s, op=torch.distributed.ReduceOp.MAX)
    return int(np.clip(budget_s / max(float(each_s), 1e-9), _LEAST_COUNT, _MOST_COUNT))


def _spans(call: Callable[[], None], repeats: int) -> list[tuple[float, float]]:
    """Return start and end of each of `repeats` calls, which follow a stretch of computation as those of a step do.

    Ranks that only communicate find caches warm and a processor free at once.
    """
    import torch

    matrix, spans = torch.ones(WORK_EXTENT, WORK_EXTENT), []
    for _ in range(repeats):
        torch.distributed.barrier()
        for _ in range(WORK_COUNT):
            torch.mm(matrix, matrix)
        started = time.perf_counter()
        call()
        spans.append((started, time.perf_counter()))
    return spans


def _call(kind: str, size: int, rank: int, rank_count: int) -> Callable[[], None]:
    """Return one collective of a message of `size` bytes; a send goes from the first rank to the second."""
    import torch
    from torch import distributed

    part = max(size // 4 // rank_count, 1)
    whole, shard = torch.zeros(part * rank_count), torch.zeros(part)

    def message() -> None:
        if rank == 0:
            distributed.send(whole, 1)
        elif rank == 1:
            distributed.recv(whole, 0)

    gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
    scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)
    calls: Mapping[str, Callable[[], Any]] = {
        "all_reduce": lambda: distributed.all_reduce(whole),
        "all_gather": lambda: gather(whole, shard),
        "reduce_scatter": lambda: scatter(shard, whole),
        "all_to_all": lambda: distributed.all_to_all_single(torch.empty_like(whole), whole),
        "broadcast": lambda: distributed.broadcast(whole, 0),
        "send": message,
    }
    return calls[kind]


def fitted_fabric(samples: Sequence[Sample], name: str = "gloo") -> Fabric:
    """Return the fabric whose one tier has a fit for each kind and number of ranks.

    >>> sizes = (256, 2**16, 2**24)
    >>> samples = [Sample("all_reduce", 2, size, (1e-4 + size / 1e9,) * 5) for size in sizes]
    >>> fit = fitted_fabric(samples).tiers[0].fits[0]
    >>> round(fit.base_s * 1e6), round(fit.bytes_per_s / 1e6)
    (100, 1000)
    """
    groups: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.kind, sample.rank_count), []).append(sample)
    fits = tuple(_fit(kind, count, rows) for (kind, count), rows in sorted(groups.items()))
    sends = [fit for fit in fits if fit.kind == "send"] or list(fits)
    source = (
        f"measured on this machine ({cpu_name() or platform.processor()}) on {date.today().isoformat()}: gloo over "
        f"loopback, {sum(len(sample.times_s) for sample in samples)} collectives"
    )
    tier = Tier(
        name="loopback", device_count=0, bandwidth_bytes_per_s=max(fit.bytes_per_s for fit in fits) * 2,
        latency_s=min(fit.base_s for fit in sends), fits=fits, source=source,
    )  # fmt: skip
    return Fabric(name=name, title="gloo over the loopback interface of one machine", tiers=(tier,))


def _fit(kind: str, rank_count: int, samples: Sequence[Sample]) -> TransferFit:
    """Return base and rate of least relative error over the typical times of all sizes."""
    size = np.array([sample.size_bytes for sample in samples], dtype=float)
    typical_s = np.array([sample.typical_s for sample in samples])
    columns, ones = np.stack([np.ones_like(size), size], 1) / typical_s[:, None], np.ones_like(size)
    weights = ones
    for _ in range(_WEIGHING_COUNT):  # least absolute relative errors by weighted squares: single outliers count less
        base_s, per_byte_s = np.linalg.lstsq(columns * weights[:, None], weights, rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(np.abs(columns @ np.array([base_s, per_byte_s]) - ones), 0.02))
    base_s = max(base_s, typical_s.min() / 2)
    per_byte_s = max(per_byte_s, typical_s.max() / size.max() / 2)
    ratios = np.concatenate(
        [np.array(sample.times_s) / (base_s + sample.size_bytes * per_byte_s) for sample in samples]
    )  # fmt: skip
    low, high = np.quantile(ratios, (0.05, 0.95))
    return TransferFit(
        kind=kind, rank_count=rank_count, base_s=float(base_s), bytes_per_s=float(1 / per_byte_s),
        low_ratio=float(min(low, 1.0)), high_ratio=float(max(high, 1.0)),
    )  # fmt: skip
