"""Predicted epochs of training loaders against measured ones: workers, cold and warm page cache, three workloads."""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import Figure
from nearpeak.core.edge.training_matrix import CACHES, MODELS, TrainingCell
from nearpeak.measurement.training.loader_probes import probe_loader
from nearpeak.measurement.training.training_run import run_cell
from nearpeak.systems.edge.loader_queue import constant_epoch_s, loaded_epoch

FIGURES = (
    "loader_sleep_worst", "loader_prediction_worst", "loader_prediction_median", "loader_prediction_within",
)  # fmt: skip
WORKERS, EPOCHS = (0, 1, 2, 4), 4
SLEEPERS, SLEEPS, FETCH_S, COMPUTE_S = (1, 2, 3, 4), 60, 0.18, 0.06
ITEMS = {"lenet5": 2048, "resnet18": 128, "mobilenetv3": 64}


def measure() -> Iterator[Figure]:
    """Yield the errors of all epochs; the shortest of some is compared, as other programs only lengthen it."""
    sleep = max(map(sleep_error, (0, *SLEEPERS)))
    yield Figure(name="loader_sleep_worst", value=sleep, unit="", bar="<= 0.05", passed=sleep <= 0.05)
    with tempfile.TemporaryDirectory() as name:
        errors = [error for model in MODELS for error in errors_of(model, Path(name))]
    worst, middle = max(errors), statistics.median(errors)
    within = sum(error <= 0.1 for error in errors) / len(errors)
    yield Figure(name="loader_prediction_worst", value=worst, unit="", bar="<= 0.1", passed=worst <= 0.1, seed=0)
    yield Figure(name="loader_prediction_median", value=middle, unit="", bar="", passed=True, seed=0)
    yield Figure(name="loader_prediction_within", value=within, unit="", bar="1", passed=within == 1, seed=0)


class Sleeper:
    """A data set whose items only take time."""

    def __len__(self) -> int:
        """Return the number of items."""
        return SLEEPS

    def __getitem__(self, number: int) -> int:
        """Return an item after a while."""
        time.sleep(FETCH_S)
        return number


def sleep_error(workers: int) -> float:
    """Return the relative error of the closed form for PyTorch's loader where fetching and compute only sleep."""
    import torch

    torch.set_num_threads(1)
    batches = iter(torch.utils.data.DataLoader(Sleeper(), batch_size=None, num_workers=workers))
    begun_s = time.monotonic()  # workers are started; their fetching has begun
    for _ in range(SLEEPS):
        next(batches)
        time.sleep(COMPUTE_S)
    measured_s = time.monotonic() - begun_s  # the end of workers is not of the queue
    predicted_s = constant_epoch_s(SLEEPS, FETCH_S, COMPUTE_S, workers)
    print(f"sleep, {workers} workers: {predicted_s:.2f} s, {measured_s:.2f} s", file=sys.stderr)
    return abs(predicted_s / measured_s - 1)


def errors_of(model: str, data: Path) -> Iterator[float]:
    """Yield the relative error of each epoch of a model, and print both times."""
    usual = {"model": model, "batch": 16, "item_count": ITEMS[model], "telemetry_hz": 0.0}
    case = probe_loader(TrainingCell(worker_count=0, cache="warm", **usual), data)
    print(case, file=sys.stderr)
    for workers in WORKERS:
        for cache in CACHES:
            predicted_s = loaded_epoch(case, workers, 1.0 if cache == "cold" else 0.0).epoch_s
            cell = TrainingCell(worker_count=workers, cache=cache, epoch_count=EPOCHS, **usual)
            epochs = run_cell(cell, data).epochs
            measured_s = min(epoch.epoch_s for epoch in epochs)
            best = min(epochs, key=lambda epoch: epoch.epoch_s)
            print(
                f"{cell.label}: predicted {predicted_s:.3f} s, measured {measured_s:.3f} s, "
                f"{predicted_s / measured_s - 1:+.1%} {json.dumps({k: round(v, 3) for k, v in best.phases_s.items()})}",
                file=sys.stderr,
            )
            yield abs(predicted_s / measured_s - 1)
