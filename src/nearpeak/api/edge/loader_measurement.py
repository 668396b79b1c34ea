"""Data loaders measured on this machine: three short runs, and what they predict for other workers and memory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nearpeak.core.edge.loader_answer import LoaderAnswer, LoaderCase
from nearpeak.core.edge.training_matrix import ITEMS, TrainingCell
from nearpeak.units import show


def measured_loader(
    model: str, workers: Sequence[int], data: Path, *, batch: int = 16, item_count: int = 0, prefetch_count: int = 2,
    ram_bytes: float | None = None,
) -> LoaderAnswer:  # fmt: skip
    """Return the plan of a loader whose times are measured here on a built-in model and its data set.

    Args:
        data: folder of data sets.
        item_count: items of the data set; a few seconds' worth where it is 0.
        ram_bytes: memory for the page cache; enough for all files where it is none.

    Raises:
        SpecError: there is no such model.
    """
    from nearpeak.measurement.training.loader_probes import probe_loader
    from nearpeak.systems.edge.loader_plan import plan_loader

    count = item_count or ITEMS.get(model, 1)
    cell = TrainingCell(
        model=model, batch=batch, worker_count=0, cache="warm", item_count=count, prefetch_count=prefetch_count,
        telemetry_hz=0.0,
    )  # fmt: skip
    data.mkdir(parents=True, exist_ok=True)
    case = probe_loader(cell, data)
    if ram_bytes is not None:
        case = replace(case, ram_bytes=ram_bytes)
    return plan_loader(case, workers, notes=(_words(case, model),))


def _words(case: LoaderCase, model: str) -> str:
    """Return what was measured."""
    times = {
        "compute of a batch in memory": case.compute_s, "preparation of an item from the page cache": case.prep_s,
        "sending a batch": case.send_s, "receiving one": case.hand_over_s, "start and stop of a worker": case.start_s,
        "and once": case.start_once_s,
    }  # fmt: skip
    parts = ", ".join(f"{name} {show(float(f'{value:.3g}'), 's')}" for name, value in times.items())
    rate = show(float(f"{case.read_bytes_per_s:.3g}"), "B/s")
    return f"Measured here with {model}, shortest of three: {parts}; files that were dropped from memory: {rate}."
