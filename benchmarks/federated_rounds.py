"""Federated rounds: the golden round, a thousand clients for a thousand rounds, and four real throttled processes."""

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np

from benchmarks._figures import Figure
from nearpeak.core.federated.client_fleet import ClientCost, Fleet, group_of
from nearpeak.core.federated.round_rules import policy_of, server_of
from nearpeak.systems.federated.client_columns import clients, example
from nearpeak.systems.federated.model_average import weighted_mean
from nearpeak.systems.federated.policy_outcome import Federation, simulated_rounds
from nearpeak.systems.federated.round_clock import synchronous_rounds
from nearpeak.systems.federated.small_classifier import Layers, trained

FIGURES = (
    "federated_golden_error", "federated_sync_seconds", "federated_async_seconds", "federated_presence_seconds",
    "federated_order_statistics_error", "federated_processes_error",
)  # fmt: skip
CLIENTS, ROUNDS, SEED = 1_000, 1_000, 7
LAYERS = Layers(input_count=64, hidden_count=64, class_count=10)
PACE_S = 0.25
"""Time between two looks at the share of a throttled process."""


class Worker(NamedTuple):
    """A throttled process."""

    share: float
    samples: int


WORKERS = (Worker(0.12, 4_000), Worker(0.08, 4_000), Worker(0.05, 3_000), Worker(0.04, 4_000))
EPOCHS, REAL_ROUNDS, BATCH, CALIBRATION_EPOCHS = 16, 6, 32, 4


def measure() -> Iterator[Figure]:
    """Yield each figure as soon as it is known."""
    three = clients(*example(), model_bytes=46_758_000)
    log = synchronous_rounds(three, policy_of("random"), round_count=1, most=3)
    wrong_j = abs(log.energy_j(three).sum() - 530.064)
    yield _most("federated_golden_error", max(abs(log.total_s - 45.4064), wrong_j), "s or J", 1e-9)
    for name, server, comes in (("sync", "sync", False), ("async", "async", False), ("presence", "sync", True)):
        yield _most(f"federated_{name}_seconds", _seconds(server, comes_and_goes=comes), "CPU s", 10.0)
    yield _most("federated_order_statistics_error", _order_error(), "%", 1.0)
    yield _most("federated_processes_error", 100 * real_error(), "%", 10.0)


def _seconds(server: str, *, comes_and_goes: bool) -> float:
    means_s = {"on_mean_s": 3600.0, "off_mean_s": 900.0} if comes_and_goes else {}
    groups = tuple(
        replace(
            group_of(f"board{place}", sample_count=100 + place), client_count=CLIENTS // 10, spread_ratio=0.2, **means_s
        )
        for place in range(10)
    )
    costs = {
        group.name: ClientCost(sample_s=time_s, low_s=time_s, high_s=time_s, busy_w=9.0, idle_w=2.0, source="stated")
        for group, time_s in zip(groups, np.linspace(0.01, 0.1, 10).tolist(), strict=True)
    }
    federation = Federation(Fleet(groups=groups), costs, 46_758_000, ROUNDS, CLIENTS)
    begun_s = time.process_time()
    simulated_rounds(federation, policy_of("random"), server_of(server), seed=SEED)
    return time.process_time() - begun_s


def _order_error() -> float:
    """Return by how many percent the mean round of 100 clients with exponential times misses H_100 / rate."""
    fleet = Fleet(groups=(replace(group_of("board", rate_bytes_per_s=1e15), client_count=100),))
    costs = {"board": ClientCost(sample_s=0.01, low_s=0.01, high_s=0.01, busy_w=1.0, idle_w=1.0, source="stated")}
    draw, columns = np.random.default_rng(SEED), clients(fleet, costs, model_bytes=1)
    log = synchronous_rounds(
        columns, policy_of("random"), round_count=20_000, most=100, factors=lambda _: draw.exponential(size=100)
    )  # fmt: skip
    return float(100 * abs(log.round_s.mean() / sum(1 / place for place in range(1, 101)) - 1))


def real_error() -> float:
    """Return the relative error of the simulated round time against four processes with throttled shares.

    Each process says before every round how much CPU time a sample of a few epochs takes it, beside the others: other
    work on the machine changes that. Everything else follows from shares, samples and epochs.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for worker in WORKERS:
        here, there = context.Pipe()
        processes.append(context.Process(target=run_worker, args=(there, worker.share, worker.samples), daemon=True))
        processes[-1].start()
        pipes.append(here)
    try:
        model = LAYERS.initial(SEED)
        samples_s, times_s = [], []
        for number in range(REAL_ROUNDS + 1):
            for pipe in pipes:
                pipe.send_bytes(np.array([-CALIBRATION_EPOCHS, 0]).tobytes() + model.tobytes())
            samples_s.append([float(np.frombuffer(pipe.recv_bytes())[0]) for pipe in pipes])
            begun_s = time.perf_counter()
            for pipe in pipes:
                pipe.send_bytes(np.array([EPOCHS, number]).tobytes() + model.tobytes())
            answers = [np.frombuffer(pipe.recv_bytes()) for pipe in pipes]
            model = weighted_mean(np.array(answers), np.array([float(worker.samples) for worker in WORKERS]))
            times_s.append(time.perf_counter() - begun_s)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    usual_s = np.median(np.array(samples_s[1:]), axis=0).tolist()
    return abs(_simulated(usual_s) / float(np.median(times_s[1:])) - 1)


def _simulated(sample_s: list[float]) -> float:
    groups = tuple(
        replace(group_of(f"process{place}", sample_count=worker.samples, rate_bytes_per_s=1e9))
        for place, worker in enumerate(WORKERS)
    )
    costs = {
        group.name: ClientCost(
            sample_s=used_s / worker.share,
            low_s=used_s,
            high_s=used_s,
            busy_w=None,
            idle_w=None,
            source="measured",
        )
        for group, worker, used_s in zip(groups, WORKERS, sample_s, strict=True)
    }
    fleet = Fleet(groups=groups, epoch_count=EPOCHS)
    federation = Federation(fleet, costs, 8 * LAYERS.parameter_count, REAL_ROUNDS, len(WORKERS))
    return float(simulated_rounds(federation, policy_of("random"), server_of("sync")).round_s.mean())


def run_worker(pipe: Connection, share: float, samples: int) -> None:
    """Train on whatever arrives, using no more than a share of one core; negative epochs ask for CPU time."""
    draw = np.random.default_rng(samples)
    data, labels = draw.normal(size=(samples, LAYERS.input_count)), draw.integers(0, 10, samples)
    while True:
        message = pipe.recv_bytes()
        epochs, number = np.frombuffer(message[:16], np.int64).tolist()
        model = np.frombuffer(message[16:])
        begun_s, used_s = time.perf_counter(), time.process_time()
        for epoch in range(abs(epochs)):
            for start in range(0, samples, BATCH):
                rows = slice(start, start + BATCH)
                model = trained(
                    LAYERS, model, data[rows], labels[rows], epoch_count=1, batch_count=BATCH, seed=number + epoch
                )
                ahead_s = (time.process_time() - used_s) / share - (time.perf_counter() - begun_s)
                if ahead_s > PACE_S:
                    time.sleep(ahead_s)
        if epochs > 0:
            pipe.send_bytes(model.tobytes())
        else:
            pipe.send_bytes(np.array([(time.process_time() - used_s) / (-epochs * samples)]).tobytes())


def _most(name: str, value: float, unit: str, most: float) -> Figure:
    return Figure(name=name, value=float(value), unit=unit, bar=f"<= {most:g} {unit}", passed=value <= most, seed=SEED)
