"""One training run in this process: epochs with their phases, page cache, energy, losses and sensors."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.process_limits import limit
from nearpeak.core.edge.training_matrix import HERE, CellLog, EpochLog, TrainingCell
from nearpeak.core.runs.energy import energies_of, preferred
from nearpeak.core.runs.measurement import Environment
from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.training import page_residency
from nearpeak.measurement.training.batch_clock import BatchClock, NoClock
from nearpeak.measurement.training.board_state import board_facts, present_mode
from nearpeak.measurement.training.small_models import build_model
from nearpeak.measurement.training.training_data import KINDS, TrainingItems, gather, image_form, make_data

LEARNING_RATE, MOMENTUM = 0.01, 0.9


def run_cell(cell: TrainingCell, data: Path, *, key: str = "", is_logged: bool = True) -> CellLog:
    """Return what a training run has logged.

    Args:
        data: folder of data sets; the one of this run is made there if it is missing.
        is_logged: whether phases are marked; else only begin and end of each epoch are known.

    Raises:
        SpecError: the board is in another power mode than the one of the run.
        MeasureError: there is no CUDA device.
    """
    import torch

    mode = present_mode()
    if cell.mode not in (HERE, mode):
        raise SpecError(
            f"train-bench: mode {cell.mode!r} is not the present one, {mode or 'unknown'}; --allow-mode-changes sets it"
        )
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise MeasureError("train-bench: there is no CUDA device here; --device cpu trains on the processor")
    torch.set_num_threads(cell.thread_count)
    kind = KINDS[cell.model]
    place = make_data(kind, cell.item_count, cell.seed, data)
    items = TrainingItems(kind, place, cell.seed)
    trainer = Trainer(cell, items, kind.class_count, is_logged=is_logged)
    begun_ns, epochs, missing = time.time_ns(), list[EpochLog](), "switched off"
    with ExitStack() as stack:
        sampler: Any = None
        if cell.telemetry_hz:
            from nearpeak.measurement.telemetry.sampler_client import Sampler

            sampler = stack.enter_context(Sampler(cell.telemetry_hz))
            missing = "; ".join(f"{name}: {why}" for name, why in sampler.unavailable)
        for number in range(cell.epoch_count):
            log = trainer.epoch(number)
            epochs.append(log if sampler is None else _with_sensors(log, sampler.window(log.begin_ns, log.end_ns)))
    facts = {
        **board_facts(data), "mode": mode or "unknown", "cold": page_residency.DROPPED,
        "data": f"{kind.name}, {image_form()} files" if kind.is_files else f"{kind.name}, memory-mapped array",
        "energy": "measured" if all(epoch.energies for epoch in epochs) else "not measured: no meter answers here",
        "sensors": f"missing: {missing}" if missing else "all",
    }  # fmt: skip
    return CellLog(
        cell=cell, key=key, environment=_environment(cell), facts=facts, begun_wall_ns=begun_ns, epochs=tuple(epochs)
    )


class Trainer:
    """Model, optimizer and data of one run."""

    def __init__(self, cell: TrainingCell, items: TrainingItems, classes: int, *, is_logged: bool) -> None:
        """Make the model from the seed of the cell.

        Args:
            is_logged: whether phases of batches are marked.
        """
        import torch

        self._torch, self._cell, self._items, self._is_logged = torch, cell, items, is_logged
        self._device = torch.device(cell.device)
        self._model = build_model(cell.model, classes, norm=cell.norm, seed=cell.seed).to(self._device).train()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self._loss = torch.nn.CrossEntropyLoss()

    def epoch(self, number: int) -> EpochLog:
        """Return the log of one epoch."""
        torch, items = self._torch, self._items
        items.epoch = number
        items.close()
        (page_residency.drop_pages if self._cell.cache == "cold" else page_residency.read_pages)(items.files)
        resident_bytes, before = page_residency.resident_bytes(items.files), page_residency.counters()
        torch.manual_seed(self._cell.seed * 1009 + number)  # of dropout, whatever ran before
        loaded, results = list[tuple[int, ...]](), [torch.zeros((), device=self._device) for _ in range(2)]
        cuda = torch.cuda if self._cell.device == "cuda" else None
        clock = (BatchClock if self._is_logged else NoClock)(cuda)
        batches = iter(self.loader(number, self._cell.worker_count))
        clock.start()
        for images, labels, read in batches:
            clock.mark()
            loaded.append(read)
            self._step(images, labels, clock.mark, results)
        clock.finish()
        del batches  # ends the workers
        clock.stop()
        items.close()
        after, count = page_residency.counters(), len(items)
        names = ("read_ns", "prep_ns", "worker", "item_bytes")
        channels = {name: tuple(values) for name, values in zip(names, zip(*loaded, strict=True), strict=True)}
        return EpochLog(
            begin_ns=clock.begin_ns, end_ns=clock.end_ns, start_ns=clock.start_ns, stop_ns=clock.stop_ns,
            channels=clock.phases_ns() | channels,
            quantities={"loss": results[0].item() / count, "accuracy": results[1].item() / count},
            data_bytes=sum(path.stat().st_size for path in items.files), resident_before_bytes=resident_bytes,
            resident_after_bytes=page_residency.resident_bytes(items.files),
            major_fault_count=after.major_fault_count - before.major_fault_count,
            read_bytes=after.read_bytes - before.read_bytes if before.read_bytes >= 0 else -1,
        )  # fmt: skip

    def _step(self, images: Any, labels: Any, mark: Callable[[], None], results: list[Any]) -> None:
        """Train on a batch; loss and right answers are added on the device, which nobody waits for."""
        images, labels = (tensor.to(self._device, non_blocking=True) for tensor in (images, labels))
        mark()
        outputs = self._model(images)
        loss = self._loss(outputs, labels)
        results[0] += loss.detach() * len(labels)
        results[1] += (outputs.detach().argmax(1) == labels).sum()
        mark()
        loss.backward()
        mark()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        mark()

    def train_on(self, images: Any, labels: Any, count: int) -> None:
        """Train on one batch several times, and wait for the device."""
        results = [self._torch.zeros((), device=self._device) for _ in range(2)]
        for _ in range(count):
            self._step(images, labels, lambda: None, results)
        results[0].item()

    def loader(self, number: int, workers: int) -> Any:
        """Return the batches of an epoch, in an order of its own."""
        cell, order = self._cell, list(range(len(self._items)))
        random.Random(f"{cell.seed} {number}").shuffle(order)
        return self._torch.utils.data.DataLoader(
            self._items, batch_size=cell.batch, sampler=order, num_workers=workers, collate_fn=gather,
            prefetch_factor=cell.prefetch_count if workers else None, worker_init_fn=end_with_trainer,
            pin_memory=cell.device == "cuda",
        )  # fmt: skip


def end_with_trainer(number: int) -> None:
    """Have a worker end when the trainer is killed."""
    del number
    limit(None)


def _with_sensors(log: EpochLog, telemetry: Telemetry) -> EpochLog:
    """Return the log of an epoch with energy, temperatures and throttle reasons of its time."""
    from dataclasses import replace

    begin_s, end_s = telemetry.span_of("")
    highest = {
        series.channel.name: max(values)
        for series in telemetry.series()
        if series.channel.unit == "celsius" and (values := series.within(begin_s, end_s))
    }
    reasons = tuple(f"{name}: {reason}" for name, names in telemetry.flags() for reason in names)
    return replace(
        log, energies=preferred(energies_of(telemetry)), throttle=reasons, temperatures_celsius=highest
    )  # fmt: skip


def _environment(cell: TrainingCell) -> Environment:
    if cell.device == "cpu":
        return cpu_environment("torch", "numpy", "pillow")
    import torch

    from nearpeak.measurement.machine.cuda_device import environment

    return environment(torch)
