"""Steps of data, sharded, tensor and pipeline parallelism over gloo on this machine: measured and predicted.

Only a machine that does nothing else says how good the prediction is: with several busy processes per processor, two
halves of the same run differ by more than the bar.
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from benchmarks._figures import Figure
from nearpeak.api.cluster_collectives import workload_collectives
from nearpeak.core.systems.fabric import Cluster, Fabric
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.measurement.machine.gloo_fabric import (
    KEPT_RATIO,
    Sample,
    fitted_fabric,
    joined_samples,
    kept_mean,
    timed_collectives,
)
from nearpeak.measurement.machine.gloo_ranks import run_ranks
from nearpeak.systems.collectives.group_placement import place_ranks
from nearpeak.systems.collectives.tier_times import collective_time, straggler_wait_s
from nearpeak.systems.training.pipeline_executor import pipeline_step
from nearpeak.systems.training.schedules import schedule_of

FIGURES = ("gloo_steps_median", "gloo_steps_order")
RANK_COUNT, MICRO_BATCH_COUNT = 2, 4
PLANS = ("ddp", "fsdp", "tp", "pp")
MODELS = ((128, 2, 64), (128, 4, 128), (256, 2, 64), (256, 2, 256), (256, 4, 128))
"""Width, blocks, and rows of a step over all ranks."""
ROUND_COUNT, REPEAT_COUNT = 5, 8
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "send")
SIZES = (2**12, 2**16, 2**18, 2**20, 2**22, 2**23)
COLLECTIVE_BUDGET_S = 0.15
DRAW_COUNT, SEED = 100, 20261129


class Configuration(NamedTuple):
    """One plan of one model."""

    plan: str
    """One of PLANS."""
    width: int
    """Width of the residual stream."""
    block_count: int
    """Blocks of two linear layers."""
    row_count: int
    """Rows of a step over all ranks."""


class Work(NamedTuple):
    """What one rank runs of a configuration."""

    step: Callable[[], None]
    """The whole step."""
    alone: dict[str, Callable[[], None]]
    """Its computation without other ranks, by part."""


def measure() -> Iterator[Figure]:
    """Measure 20 steps and the collectives between them, predict each, and yield the errors."""
    configurations = [Configuration(plan, *model) for model in MODELS for plan in PLANS]
    by_rank = run_ranks(timed_steps, RANK_COUNT, configurations, timeout_s=600.0)
    fabric = fitted_fabric(_samples(by_rank))
    measured_s = [_step_s(by_rank, configuration) for configuration in configurations]
    predicted_s = [_predicted(by_rank, configuration, fabric) for configuration in configurations]
    errors = [abs(predicted / real - 1) for predicted, real in zip(predicted_s, measured_s, strict=True)]
    for configuration, real, predicted in zip(configurations, measured_s, predicted_s, strict=True):
        print(f"  {configuration}: {1e3 * real:.1f} ms, predicted {1e3 * predicted:.1f} ms", flush=True)
    for plan in PLANS:
        ratios = [p / m for c, p, m in zip(configurations, predicted_s, measured_s, strict=True) if c.plan == plan]
        print(f"  {plan}: bias {100 * (np.median(ratios) - 1):+.1f} %", flush=True)
    median = 100 * float(np.median(errors))
    order = float(np.mean([_tau(measured_s[at : at + 4], predicted_s[at : at + 4]) for at in range(0, len(errors), 4)]))
    p90, overall = 100 * float(np.quantile(errors, 0.9)), _tau(measured_s, predicted_s)
    noise = 100 * float(np.median([_noise(by_rank, configuration) for configuration in configurations]))
    print(f"  first against second half of the repetitions: {noise:.1f} % apart (median)", flush=True)
    print(f"  n {len(errors)}, p90 {p90:.1f} %, order of all {overall:.2f}", flush=True)
    yield Figure(name="gloo_steps_median", value=median, unit="%", bar="<= 10%", passed=median <= 10)
    yield Figure(name="gloo_steps_order", value=order, unit="", bar=">= 0.8", passed=order >= 0.8)


def timed_steps(rank: int, rank_count: int, configurations: list[Configuration]) -> dict[Any, list[Any]]:
    """Return the times of each configuration's step and parts, and of the collectives, on one rank."""
    import torch

    torch.manual_seed(rank)
    works = {configuration: _work(configuration, rank) for configuration in configurations}
    times: dict[Any, list[Any]] = {}
    for turn in range(ROUND_COUNT):
        if turn in (0, ROUND_COUNT - 1):
            for key, more in timed_collectives(rank, rank_count, KINDS, SIZES, COLLECTIVE_BUDGET_S).items():
                times.setdefault(key, []).extend(more)
        for configuration, work in works.items():
            for part, call in (("step", work.step), *work.alone.items()):
                times.setdefault((configuration, part), []).extend(_repeated(call, warm=1 if turn == 0 else 0))
    return times


def _repeated(call: Callable[[], None], warm: int) -> list[float]:
    import torch

    found = []
    for _ in range(warm + REPEAT_COUNT):
        torch.distributed.barrier()
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return found[warm:]


def _block(width: int, inner: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def _model(configuration: Configuration, share: int = 1, blocks: int | None = None) -> Any:
    from torch import nn

    count = configuration.block_count if blocks is None else blocks
    return nn.Sequential(*(_block(configuration.width, 4 * configuration.width // share) for _ in range(count)))


def _parallel(configuration: Configuration, mesh: Any, share: int = 1) -> Any:
    """Return the model as the plan's library spreads it over a mesh."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.nn.parallel import DistributedDataParallel

    model = _model(configuration, share)
    if configuration.plan == "ddp":
        return DistributedDataParallel(model, process_group=mesh.get_group())
    if configuration.plan == "fsdp":
        for block in model:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    plan = {f"{at}.0": ColwiseParallel() for at in range(len(model))}
    return parallelize_module(model, mesh, plan | {f"{at}.2": RowwiseParallel() for at in range(len(model))})


def _train(model: Any, rows: Any) -> Callable[[], None]:
    """Return a step of plain gradient descent."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    return step


def _work(configuration: Configuration, rank: int) -> Work:
    """Return the step of a configuration, and the same on a group of one rank."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if configuration.plan == "pp":
        return _pipeline(configuration, rank)
    groups = [torch.distributed.new_group([each]) for each in range(RANK_COUNT)]
    mesh, own = init_device_mesh("cpu", (RANK_COUNT,)), DeviceMesh.from_group(groups[rank], "cpu")
    is_split = configuration.plan == "tp"
    rows = torch.randn(configuration.row_count // (1 if is_split else RANK_COUNT), configuration.width)
    alone = _parallel(configuration, own, RANK_COUNT if is_split else 1)
    return Work(_train(_parallel(configuration, mesh), rows), {"alone": _train(alone, rows)})


def _pipeline(configuration: Configuration, rank: int) -> Work:
    """Return the work of one of two stages: all forward passes, then all backward passes, over micro-batches."""
    import torch
    from torch import distributed

    stage = _model(configuration, blocks=configuration.block_count // RANK_COUNT)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-4)
    shape = (configuration.row_count // MICRO_BATCH_COUNT, configuration.width)
    rows, gradient = torch.randn(shape), torch.randn(shape)
    probe = deepcopy(stage)  # no update changes the weights that its graph holds
    kept = probe(rows.clone().requires_grad_(rank == 1))

    def forward() -> None:  # all micro-batches in a row, as long a stretch of computation as in a step
        for _ in range(MICRO_BATCH_COUNT):
            probe(rows)

    def backward() -> None:
        for _ in range(MICRO_BATCH_COUNT):
            kept.backward(gradient, retain_graph=True)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    def step() -> None:
        pairs, sent = [], []
        for _ in range(MICRO_BATCH_COUNT):
            given = rows if rank == 0 else torch.empty(shape)
            if rank == 1:
                distributed.recv(given, 0)
                given.requires_grad_()
            pairs.append((given, stage(given)))
            if rank == 0:
                sent.append(distributed.isend(pairs[-1][1].detach(), 1))
        for given, result in pairs:
            if rank == 1:
                result.square().mean().backward()
                sent.append(distributed.isend(given.grad, 0))
            else:
                arrived = torch.empty(shape)
                distributed.recv(arrived, 1)
                result.backward(arrived)
        for message in sent:
            message.wait()
        update()

    return Work(step, {"F": forward, "B": backward, "update": update})


def _samples(by_rank: list[dict[Any, list[Any]]]) -> list[Sample]:
    return joined_samples([{key: times[key] for key in times if key[0] in KINDS} for times in by_rank])


def _step_s(by_rank: list[dict[Any, list[Any]]], configuration: Configuration) -> float:
    """Return the mean time of a step of the slower rank."""
    return kept_mean(np.max([times[configuration, "step"] for times in by_rank], axis=0))


def _noise(by_rank: list[dict[Any, list[Any]]], configuration: Configuration) -> float:
    """Return how far the halves of a step's repetitions are apart, which no prediction can beat."""
    times = np.max([times[configuration, "step"] for times in by_rank], axis=0)
    half = len(times) // 2
    return abs(kept_mean(times[:half]) / kept_mean(times[half:]) - 1)


def _alone_s(by_rank: list[dict[Any, list[Any]]], configuration: Configuration, sync_count: int) -> float:
    """Return the mean time of the computation, with the wait for the last rank at each collective."""
    columns = [np.sort(times[configuration, "alone"]) for times in by_rank]
    kept = [column[: max(round(len(column) * KEPT_RATIO), 1)] for column in columns]
    spread_s = float(np.mean([np.std(column) for column in kept])) / sync_count**0.5
    return float(np.mean(kept)) + sync_count * straggler_wait_s(RANK_COUNT, spread_s)


def _predicted(by_rank: list[dict[Any, list[Any]]], configuration: Configuration, fabric: Fabric) -> float:
    """Return the measured computation of a rank and the predicted collectives: one core runs them in turn."""
    if configuration.plan == "pp":
        return _predicted_pipeline(by_rank, configuration, fabric)
    times = workload_collectives(_captured(configuration), Cluster(target="cpu", device_count=2, fabric=fabric))
    return _alone_s(by_rank, configuration, len(times)) + sum(each.found.time_s for each in times)


def _predicted_pipeline(by_rank: list[dict[Any, list[Any]]], configuration: Configuration, fabric: Fabric) -> float:
    """Return the mean step of a pipeline whose passes and messages take times drawn from the measured ones."""
    rng = np.random.default_rng(SEED)
    message = 4 * configuration.row_count // MICRO_BATCH_COUNT * configuration.width
    fitted_s = collective_time("send", message, place_ranks([0, 1], fabric)).time_s
    sends = [sample for sample in _samples(by_rank) if sample.kind == "send"]
    ratios = np.concatenate([np.array(sample.times_s) / sample.typical_s for sample in sends])
    schedule = schedule_of("gpipe", RANK_COUNT, MICRO_BATCH_COUNT)
    steps = [
        pipeline_step(
            schedule, lambda op: float(rng.choice(by_rank[op.stage][configuration, op.kind])) / MICRO_BATCH_COUNT,
            lambda _from, _to: fitted_s * float(rng.choice(ratios)),
        ).step_s
        for _ in range(DRAW_COUNT)
    ]  # fmt: skip
    return kept_mean(steps) + max(kept_mean(times[configuration, "update"]) for times in by_rank)


def _captured(configuration: Configuration) -> Any:
    """Return the captured step of one rank, with its collectives and their groups."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from nearpeak.frontends.torch.module_capture import capture_torch

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", rank=0, world_size=RANK_COUNT, store=FakeStore())
    rows = configuration.row_count // (1 if configuration.plan == "tp" else RANK_COUNT)
    return capture_torch(
        lambda: _parallel(configuration, init_device_mesh("cpu", (RANK_COUNT,))),
        lambda: ((torch.empty(rows, configuration.width),), {}), CaptureOptions(step="train"), name="step",
    )  # fmt: skip


def _tau(first: list[float], second: list[float]) -> float:
    """Return Kendall's rank correlation."""
    signs = [
        np.sign(first[left] - first[right]) * np.sign(second[left] - second[right])
        for left, right in combinations(range(len(first)), 2)
    ]
    return float(np.mean(signs))
