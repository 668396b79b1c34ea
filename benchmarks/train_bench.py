"""Training runs: kills of the run matrix, phases against epochs, the cost of logging, a planted slowdown, workloads."""

import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.unit.measurement.training import matrix_of_sleeps as sleeps

from benchmarks._figures import Figure
from nearpeak.core.edge.training_matrix import ITEMS, MODELS, PHASES, CellLog, TrainingCell
from nearpeak.history.regression_groups import regressed
from nearpeak.history.series_tracks import track_of
from nearpeak.measurement.training import training_run
from nearpeak.measurement.training.batch_clock import BatchClock
from nearpeak.measurement.training.training_run import run_cell
from nearpeak.store import open_store
from nearpeak.store.training_records import training_record

FIGURES = (
    "train_bench_kills", "train_bench_kill_faults", "train_bench_planted_synthetic", "train_bench_workloads",
    "train_bench_phase_gap", "train_bench_marks", "train_bench_observer", "train_bench_planted_real",
)  # fmt: skip
KILLS, SEED = 200, 0
HISTORIES, ROUNDS, PLANTED = 40, 12, 0.05
BEFORE, AFTER = 20, 10


def measure() -> Iterator[Figure]:
    """Yield each figure with its bar."""
    kills, faults = killed()
    yield Figure(name="train_bench_kills", value=kills, unit="", bar=f">= {KILLS}", passed=kills >= KILLS, seed=SEED)
    yield Figure(name="train_bench_kill_faults", value=faults, unit="", bar="0", passed=faults == 0, seed=SEED)
    late = max(planted_synthetic(seed) for seed in range(HISTORIES))
    yield Figure(name="train_bench_planted_synthetic", value=late, unit="runs", bar="<= 10", passed=late <= 10, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        logs = [run_cell(cell_of(model, telemetry_hz=10.0), data) for model in MODELS]
        full = sum(is_full(log) for log in logs)
        yield Figure(name="train_bench_workloads", value=full, unit="", bar="3", passed=full == len(MODELS), seed=0)
        gap = max(abs(sum(e.phases_s.values()) / e.epoch_s - 1) for log in logs for e in log.epochs)
        yield Figure(name="train_bench_phase_gap", value=gap, unit="", bar="<= 0.01", passed=gap <= 0.01, seed=0)
        marks = mark_ratio(logs[0])
        yield Figure(name="train_bench_marks", value=marks, unit="", bar="<= 0.01", passed=marks <= 0.01)
        cost = observer_ratio(data)
        yield Figure(name="train_bench_observer", value=cost, unit="", bar="<= 0.01", passed=cost <= 0.01, seed=0)
        found = planted_real(data)
        yield Figure(name="train_bench_planted_real", value=found, unit="runs", bar="<= 10", passed=found <= 10, seed=0)


def cell_of(model: str, **changes: object) -> TrainingCell:
    """Return a cell with two workers, cold; some seconds an epoch on a core."""
    usual = TrainingCell(
        model=model, batch=16, worker_count=2, cache="cold", item_count=ITEMS[model], epoch_count=2, telemetry_hz=0.0
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def killed() -> tuple[int, int]:
    """Return how many runs were killed, and differences between the store that they filled and one filled in peace.

    Whenever the plan has come to its end, the store is compared, and another plan is begun.
    """
    draw, kills, faults = random.Random(SEED), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = sleeps.run_apart(folder / "whole", folder / "whole.db")
        wanted, number = sleeps.contents(folder / "whole.db"), 0
        while kills < KILLS:
            number += 1
            runs, store = folder / f"{number}", folder / f"{number}.db"
            for _ in range(8):
                kills += sleeps.killed_run(lambda: sleeps.run_apart(runs, store), draw.uniform(0.0, 0.2))  # noqa: B023
            answer = sleeps.run_apart(runs, store)
            rows = sleeps.contents(store)
            faults += (answer.rows != whole.rows) + (answer.planned_count > 0)
            faults += len(set(rows) ^ set(wanted)) + len(rows) - len(set(rows))
            faults += abs(len(list((runs / "results").iterdir())) - len(list(sleeps.PLAN.cells())))
    return kills, faults


def planted_synthetic(seed: int) -> int:
    """Return how many runs after a slowdown it is found, with 1 % of noise between runs; AFTER + 1 where it is not."""
    draw = random.Random(seed)
    cell = next(sleeps.PLAN.cells())

    def logs() -> Iterator[CellLog]:
        for number in range(BEFORE + AFTER):
            level_s = (1 + PLANTED if number >= BEFORE else 1.0) * draw.lognormvariate(0, 0.01)
            epochs_s = (1.3, *(level_s * draw.lognormvariate(0, 0.003) for _ in range(2)))
            log = sleeps.log_of(cell, f"{number:064x}", epochs_s)
            yield replace(log, begun_wall_ns=1_700_000_000_000_000_000 + number * 10**9)

    return runs_until_found(logs())


def runs_until_found(logs: Iterator[CellLog]) -> int:
    """Return how many runs after BEFORE a regression is found; AFTER + 1 where none is, or one before."""
    with tempfile.TemporaryDirectory() as name, open_store(Path(name) / "a.db", create=True) as store:
        for number, log in enumerate(logs, 1):
            store.ingest(training_record(log))
            if number < BEFORE:
                continue
            found = regressed([track_of(store, store.series(metric="epoch")[0].id)])
            if found:
                return number - BEFORE if number > BEFORE else AFTER + 1
    return AFTER + 1


def is_full(log: CellLog) -> bool:
    """Return whether every log of a run is filled: what is not measured says so."""
    facts = {"mode", "storage", "data", "cold", "energy", "sensors"}
    return facts <= {name for name, value in log.facts.items() if value} and all(
        epoch.channels and all(len(values) for values in epoch.channels.values())
        and math.isfinite(epoch.quantities["loss"]) and epoch.resident_before_bytes >= 0
        and epoch.resident_after_bytes > 0 and epoch.read_bytes >= 0 and epoch.major_fault_count >= 0
        and (epoch.energies or log.facts["energy"].startswith("not measured"))
        for epoch in log.epochs
    )  # fmt: skip


def mark_ratio(log: CellLog) -> float:
    """Return the time of marking the phases of a batch over that of the shortest batch of a run."""
    clock, times_s = BatchClock(), list[float]()
    for _ in range(50):
        begun_s = time.perf_counter()
        for _ in range(100 * len(PHASES)):
            clock.mark()
        times_s.append((time.perf_counter() - begun_s) / 100)
    columns = [log.epochs[-1].channels[f"{name}_ns"] for name in PHASES]
    return min(times_s) / (min(map(sum, zip(*columns, strict=True))) / 1e9)


def observer_ratio(data: Path) -> float:
    """Return what all logging adds to an epoch: median over rounds of off, on, on, off; the shortest epoch counts."""
    ratios = []
    for _ in range(ROUNDS):
        off, on = list[float](), list[float]()
        for times, is_logged in ((off, False), (on, True), (on, True), (off, False)):
            cell = cell_of("lenet5", worker_count=0, cache="warm", epoch_count=3, telemetry_hz=10.0 * is_logged)
            times.append(min(epoch.epoch_s for epoch in run_cell(cell, data, is_logged=is_logged).epochs))
        ratios.append(math.log(math.prod(on) / math.prod(off)) / 2)
    return math.expm1(statistics.median(ratios))


def planted_real(data: Path) -> int:
    """Return how many runs of real training after a slowdown of its steps it is found."""
    cell = cell_of("lenet5", worker_count=0, cache="warm", epoch_count=4, item_count=1024)

    def logs() -> Iterator[CellLog]:
        for number in range(BEFORE + AFTER):
            with slowed(PLANTED if number >= BEFORE else 0.0):
                yield replace(run_cell(cell, data), key=f"{number:064x}")

    return runs_until_found(logs())


@contextmanager
def slowed(share: float) -> Iterator[None]:
    """Have each step of training take a share longer."""
    usual: Callable[..., None] = training_run.Trainer._step

    def step(trainer: training_run.Trainer, *arguments: object) -> None:
        begun_s = time.perf_counter()
        usual(trainer, *arguments)
        # The epoch is to be slower by the share, loading included, which takes about a third of it.
        until_s = time.perf_counter() + 1.5 * share * (time.perf_counter() - begun_s)
        while time.perf_counter() < until_s:
            pass

    training_run.Trainer._step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        training_run.Trainer._step = usual  # type: ignore[method-assign]
