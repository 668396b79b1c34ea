"""Short runs that tell compute, preparation, storage and worker processes of a training loader apart."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearpeak.base.host_system import usable_core_count
from nearpeak.core.edge.loader_answer import LoaderCase
from nearpeak.core.edge.training_matrix import TrainingCell
from nearpeak.measurement.training import page_residency
from nearpeak.measurement.training.training_data import KINDS, TrainingItems, make_data
from nearpeak.measurement.training.training_run import Trainer, end_with_trainer

REPEATS = 3
"""Times that each run is taken; the shortest counts, as other programs only lengthen it."""
_STEPS, _BATCHES = 4, 12
_LEAST_RATIO = 1e-3
"""Storage that adds less than this share to a run is not resolved, and priced as that share."""


def probe_loader(cell: TrainingCell, data: Path, repeats: int = REPEATS) -> LoaderCase:
    """Return the loader of a training run from three short runs, and two of worker processes without any work.

    Steps on a batch in memory give compute; loading cached files without training gives preparation; loading them after
    they were dropped from the page cache gives the rate of storage (as DS-Analyzer does, Mohan et al. 2021, which needs
    rights over the whole cache). Workers that hand over a batch that they hold give their start and the hand-over.
    """
    import torch

    torch.set_num_threads(cell.thread_count)
    kind = KINDS[cell.model]
    items = TrainingItems(kind, make_data(kind, cell.item_count, cell.seed, data), cell.seed)
    trainer = Trainer(cell, items, kind.class_count, is_logged=False)
    images, labels, _ = next(iter(trainer.loader(0, workers=0)))
    compute_s = _least(repeats, lambda: _timed(lambda: trainer.train_on(images, labels, _STEPS))) / _STEPS

    def load() -> float:
        return _timed(lambda: deque(trainer.loader(0, workers=0), maxlen=0))

    def load_dropped() -> float:
        items.close()
        page_residency.drop_pages(items.files)
        return load()

    page_residency.read_pages(items.files)
    cached_s = _least(repeats, load)
    cold_s = _least(repeats, load_dropped)
    items.close()
    data_bytes = sum(path.stat().st_size for path in items.files)
    starts_s, send_s = [], 0.0
    for count in (1, 2):
        runs = [_transport(images, labels, count, pause_s=0.0) for _ in range(repeats)]
        starts_s.append(min(start_s for start_s, _ in runs))
        send_s = send_s or min(batch_s for _, batch_s in runs)
    hand_over_s = _least(repeats, lambda: _transport(images, labels, 1, pause_s=2 * send_s)[1])
    each_s = max(0.0, starts_s[1] - starts_s[0])
    return LoaderCase(
        file_count=cell.item_count, file_bytes=data_bytes / cell.item_count, batch=cell.batch, compute_s=compute_s,
        prep_s=cached_s / cell.item_count, ram_bytes=2 * data_bytes,
        read_bytes_per_s=data_bytes / max(cold_s - cached_s, _LEAST_RATIO * cached_s),
        send_s=send_s, hand_over_s=min(hand_over_s, send_s), start_s=each_s,
        start_once_s=max(0.0, starts_s[0] - each_s), prefetch_count=cell.prefetch_count,
        core_count=0 if cell.device == "cuda" else usable_core_count(), is_compute_on_cores=cell.device == "cpu",
    )  # fmt: skip


def _least(repeats: int, run: Callable[[], float]) -> float:
    return min(run() for _ in range(repeats))


def _timed(run: Callable[[], object]) -> float:
    begun_ns = time.monotonic_ns()
    run()
    return (time.monotonic_ns() - begun_ns) / 1e9


class _Held:
    """A data set whose items are whole batches that are there already, copied as a loader's would be new."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return _BATCHES

    def __getitem__(self, number: int) -> Any:
        del number
        return tuple(tensor.clone() for tensor in self._batch)


def _transport(images: Any, labels: Any, workers: int, *, pause_s: float) -> tuple[float, float]:
    """Return the time to start and stop workers, and that between batches without the pause of whoever takes them."""
    import torch

    begun_ns = time.monotonic_ns()
    batches = iter(
        torch.utils.data.DataLoader(
            _Held((images, labels)), batch_size=None, num_workers=workers, worker_init_fn=end_with_trainer
        )
    )
    next(batches)
    first_ns, taken_ns = time.monotonic_ns(), 0
    for _ in range(_BATCHES - 1):
        time.sleep(pause_s)
        before_ns = time.monotonic_ns()
        next(batches)
        taken_ns += time.monotonic_ns() - before_ns
    last_ns = time.monotonic_ns()
    del batches
    ends_ns = first_ns - begun_ns + time.monotonic_ns() - last_ns
    batch_s = taken_ns / 1e9 / (_BATCHES - 1)
    return max(0.0, ends_ns / 1e9 - batch_s), batch_s
