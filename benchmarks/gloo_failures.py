"""Two gloo workers, one of them killed at seeded moments: progress that is kept, measured and simulated."""

import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks._figures import Figure
from nearpeak.systems.training.goodput.failure_model import CheckpointCost, FailureModel
from nearpeak.systems.training.goodput.run_goodput import goodput_of

FIGURES = ("gloo_failures_kills", "gloo_failures_replay_error", "gloo_failures_simulated_error")
SEED, RUN_S, FAILURE_S, CALIBRATION_KILLS = 7, 60.0, 3.0, 6
ELEMENTS, STEPS_PER_SAVE, SAVED_ELEMENTS = 65_536, 40, 2_000_000
POLL_S, PAUSE_S = 0.002, 0.008


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What was measured of the job; other work on the host makes steps longer for minutes, which is no failure."""

    step_s: float
    """Mean time of the experiment's steps."""
    save_s: float
    """Mean time of its blocking checkpoints."""
    restart_s: float
    """Mean time from a kill to the start of the first step after it, of kills before the experiment."""


def measure() -> Iterator[Figure]:
    """Yield the kills, and how far replayed and simulated shares of progress lie from the measured one."""
    draw, moments = random.Random(SEED), list[float]()
    while sum(moments) < RUN_S:
        moments.append(draw.expovariate(1 / FAILURE_S))
    with tempfile.TemporaryDirectory() as name:
        restart_s = calibrate(Path(name) / "calibration")
        log = run(Path(name) / "experiment", moments, RUN_S)
        costs = costs_of(lines(Path(name) / "experiment"), restart_s)
    measured = log[-1][1] * costs.step_s / RUN_S
    kills = int(np.sum(np.cumsum(moments) < RUN_S))
    replayed = replay(costs, moments)
    report = goodput_of(
        CheckpointCost(blocking_s=costs.save_s), costs.restart_s,
        failures=FailureModel(failure_interval_s=FAILURE_S, source="drawn by the experiment"),
        interval_s=STEPS_PER_SAVE * costs.step_s, horizon_s=RUN_S, seed=SEED,
    )  # fmt: skip
    yield Figure(name="gloo_failures_kills", value=kills, unit="kills", bar=">= 10", passed=kills >= 10, seed=SEED)
    for name, share, most in (("replay", replayed, 0.05), ("simulated", report.goodput_ratio, 0.08)):
        error = abs(share - measured)
        yield Figure(
            name=f"gloo_failures_{name}_error", value=error, unit="share of the run", bar=f"<= {most:g}",
            passed=error <= most, seed=SEED,
        )  # fmt: skip
    print(f"costs {costs}; measured {measured:.3f}, replayed {replayed:.3f}, simulated {report.shares['productive']}")


def calibrate(folder: Path) -> float:
    """Return the mean time to restart after a few kills at equal distances."""
    kills: list[tuple[float, float]] = []
    run(folder, [1.5] * CALIBRATION_KILLS, 1.5 * CALIBRATION_KILLS + 1.0, kills)
    return fmean(back - gone for gone, back in kills)


def costs_of(rows: list[tuple[float, int, int]], restart_s: float) -> Costs:
    """Return the mean times of the steps and checkpoints of a log."""
    pairs = [(after[0] - before[0], after[1]) for before, after in pairwise(rows) if before[2] == after[2]]
    step_s = fmean(time_s for time_s, step in pairs if step % STEPS_PER_SAVE)
    saves = [time_s for time_s, step in pairs if step % STEPS_PER_SAVE == 0]
    return Costs(step_s=step_s, save_s=fmean(saves) - step_s, restart_s=restart_s)


def replay(costs: Costs, moments: list[float]) -> float:
    """Return the kept share of a run whose failures come after these times."""
    interval_s, left_s, kept_s = STEPS_PER_SAVE * costs.step_s, RUN_S, 0.0
    for place, until_s in enumerate(moments):
        span_s = min(until_s, left_s) - (costs.restart_s if place else 0.0)
        left_s -= min(until_s, left_s)
        saves, part_s = divmod(max(span_s, 0.0), interval_s + costs.save_s)
        kept_s += saves * interval_s + (min(part_s, interval_s) if left_s <= 0 else 0.0)
        if left_s <= 0:
            break
    return kept_s / RUN_S


def run(
    folder: Path, moments: list[float], run_s: float, kills: list[tuple[float, float]] | None = None
) -> list[tuple[float, int]]:
    """Run two workers, kill one after each of `moments`, and return the steps of the log that were kept at the end.

    Args:
        kills: receives the time of each kill and of the first step after it.
    """
    folder.mkdir(parents=True)
    import torch.distributed  # noqa: F401  # once, so that workers start with it

    context = multiprocessing.get_context("fork")
    begin, moment, gone = time.perf_counter(), 0.0, 0.0
    for place, until_s in enumerate([*moments, run_s]):
        moment = min(moment + until_s, run_s)
        workers = [context.Process(target=work, args=(rank, folder, place)) for rank in (0, 1)]
        for worker in workers:
            worker.start()
        while (now := time.perf_counter()) < begin + moment:
            if not all(worker.is_alive() for worker in workers):
                raise RuntimeError(f"a worker of incarnation {place} ended by itself")
            time.sleep(min(POLL_S, max(begin + moment - now, 0.0)))
        before, gone = gone, time.perf_counter()
        for worker in reversed(workers):  # the second fails; the first cannot go on without it
            worker.kill()
            worker.join()
        if kills is not None and place:
            first = next((at for at, _, turn in lines(folder) if turn == place), None)
            kills += [(before, first)] if first is not None else []
        if gone >= begin + run_s:
            break
    return kept(folder)


def lines(folder: Path) -> list[tuple[float, int, int]]:
    """Return time, number and incarnation of every step that was begun."""
    text = (folder / "log").read_text() if (folder / "log").exists() else ""
    rows = [line.split() for line in text.splitlines()]
    return [(float(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3]


def kept(folder: Path) -> list[tuple[float, int]]:
    """Return the steps of the last incarnation, whose numbers say how many were kept."""
    rows = lines(folder)
    return [(at, step) for at, step, turn in rows if turn == rows[-1][2]]


def work(rank: int, folder: Path, turn: int) -> None:
    """Train until the other worker is gone."""
    with suppress(RuntimeError):
        train(rank, folder, turn)


def train(rank: int, folder: Path, turn: int) -> None:
    """Train from the last checkpoint: a pause for the work of a device, an all-reduce, a checkpoint every few steps."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{turn}", rank=rank, world_size=2)
    saved, gradient = folder / "checkpoint.npy", torch.ones(ELEMENTS)
    state = np.load(saved) if saved.exists() else np.zeros(SAVED_ELEMENTS, np.float32)
    step, log = int(state[0]), os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    dist.barrier()
    while True:
        if rank == 0:
            os.write(log, f"{time.perf_counter()} {step} {turn}\n".encode())
        time.sleep(PAUSE_S)
        dist.all_reduce(gradient)
        gradient /= 2
        step += 1
        if step % STEPS_PER_SAVE == 0:
            if rank == 0:
                state[0] = step
                with (folder / "next.npy").open("wb") as file:
                    np.save(file, state)
                    file.flush()
                    os.fsync(file.fileno())
                (folder / "next.npy").replace(saved)
            dist.barrier()


if __name__ == "__main__":
    for figure in measure():
        print(figure)
