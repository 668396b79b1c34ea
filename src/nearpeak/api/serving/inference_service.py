"""Plans of inference servers: latencies by configuration, batch times and load, and the cheapest within a limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from nearpeak.api.serving.server_words import Stream
from nearpeak.core.systems.inference_plan import LoadPoint, PlannedServer, ServerSetting, StreamOutcome
from nearpeak.errors import SpecError, shown
from nearpeak.systems.serving.inference_server.batch_queue import (
    BatchTimes,
    ServedBatches,
    cheapest,
    serve_batches,
)
from nearpeak.systems.serving.inference_server.model_config import (
    ModelConfig,
    model_config_text,
    step_waits,
    with_batching,
)
from nearpeak.systems.serving.inference_server.shared_device import Tenant, serve_tenants
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_capacity import rate_between, three_digits

ASSUMED_MPS_RATIO = 0.5
"""Slowdown by a busy neighbour under MPS where none is stated: midway between turns and parts of their own, no
measurement. It depends on how full each model's kernels keep the device; the answer says that it is assumed."""
SHARINGS = {"turns": 1.0, "mps": ASSUMED_MPS_RATIO, "mig": 0.0}
"""How much a busy instance lengthens another's batch. Turns: kernels of two processes never overlap (time slicing,
CUDA's default between processes). MIG: parts of their own; give times on the part. MPS lies between."""
ON_HOST = "instances on the host's processors (KIND_CPU), which are taken not to hinder each other"
"""What stands in place of a sharing where no instance is on a device."""
SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95)
"""Loads of the curve, of the capacity."""
REQUESTS, RAMP = 6_000, 0.1
"""Requests of a load that is drawn, and the share of them before the steady state."""
INSTANCES, DELAYS_S, DEVICES = (1, 2, 4, 8), (0.0, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2), (1, 2, 4, 8, 16)
"""Settings that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerQuestion:
    """What is asked of an inference server."""

    configs: tuple[ModelConfig, ...]
    """Configurations; an ensemble with those of its steps, or models that share a device."""
    times: Mapping[str, BatchTimes]
    """Batch times by model."""
    rate_per_s: float = 0.0
    """Poisson arrivals; 0 for none."""
    streams: tuple[Stream, ...] = ()
    """Streams at equal gaps."""
    item_count: int = 1
    """Items of a request."""
    limit_s: float | None = None
    """Limit of the 99th percentile."""
    sharing_ratio: float = 1.0
    """How much a busy instance lengthens another's batch."""
    is_sharing_assumed: bool = False
    """Whether that is an assumption of nearpeak, not a figure of the user's."""
    how: str = "instances take turns on the device"
    """The same in words."""
    device_count: int = 1
    """Devices, each with instances."""
    seed: int = 0
    """Of the arrivals."""


def plan_server(question: ServerQuestion) -> PlannedServer:
    """Return the latencies of an inference server, and with a rate and a limit the cheapest setting that meets it.

    Raises:
        SpecError: a model has no batch times, requests are larger than batches, or no setting meets the limit.
    """
    first, chain = question.configs[0], _chain(question)
    if all(config.instance_kind == "KIND_CPU" for config in chain):
        if question.device_count > 1:
            raise SpecError(f"--devices: instances of {chain[0].words} run on the host (KIND_CPU); leave it out")
        configs = tuple(replace(config, device_numbers=()) for config in question.configs)
        question = replace(question, configs=configs, sharing_ratio=0.0, is_sharing_assumed=False, how=ON_HOST)
        chain = _chain(question)
    for config in chain:
        if config.name not in question.times:
            raise SpecError(f"{config.words}: has no batch times; add --times {config.name}:1=TIME,…")
        if question.item_count > max(config.most_batch_count, 1):
            raise SpecError(
                f"{config.words}: a request of {shown(question.item_count)} items exceeds max_batch_size "
                f"{config.most_batch_count}"
            )
    if question.streams or (len(chain) > 1 and not first.steps):
        return _shared(question)
    run = _ensemble_run(question, chain) if first.steps else _runner(question, chain[0])
    capacity = _capacity(question, chain)
    chosen, tail, looked = None, None, 0
    if question.rate_per_s and question.limit_s is not None and not first.steps:
        chosen, tail, looked = _cheapest(question, chain[0])
    highest = None if question.limit_s is None else _highest(run, capacity, question)
    at_rate = _point(run, question.rate_per_s, question) if question.rate_per_s else None
    steps: tuple[StreamOutcome, ...] = ()
    if first.steps and question.rate_per_s:
        steps = tuple(
            _outcome(config.name, question.rate_per_s, served.latency_s[round(RAMP * REQUESTS) :], None)
            for config, served in zip(chain, run(_arrivals(question.rate_per_s, question.seed)), strict=True)
        )
    final = chain[0] if chosen is None else with_batching(
        chain[0], instances=chosen.instance_count, most_batch=chosen.most_batch_count,
        queue_delay_s=chosen.queue_delay_s, device_count=chosen.device_count,
    )  # fmt: skip
    return PlannedServer(
        models=tuple(config.name for config in chain), setting=_setting(chain[0], question.device_count),
        how=question.how, sharing_ratio=question.sharing_ratio,
        is_sharing_assumed=question.is_sharing_assumed, capacity_per_s=capacity,
        loads=tuple(_point(run, share * capacity, question) for share in SHARES),
        asked=at_rate, streams=(), steps=steps,
        limit_s=question.limit_s, highest_per_s=highest, cheapest=chosen, cheapest_p99_s=tail, looked_count=looked,
        config=model_config_text(first if first.steps else final),
    )  # fmt: skip


def _chain(question: ServerQuestion) -> tuple[ModelConfig, ...]:
    """Return the models that requests pass through: those of an ensemble's steps, else all that are given."""
    first, by_name = question.configs[0], {config.name: config for config in question.configs}
    if not first.steps:
        return question.configs
    missing = [step.model for step in first.steps if step.model not in by_name]
    if missing:
        raise SpecError(f"{first.words}: its step {shown(missing[0])} has no configuration; give it beside")
    models = [step.model for step in first.steps]
    if len(set(models)) < len(models):
        twice = max(models, key=models.count)
        raise SpecError(
            f"{first.words}: {models.count(twice)} of its steps run the model {shown(twice)}, whose queue and "
            "instances they share on a server, which is not modelled; where each has its own, give it its own name"
        )
    return tuple(by_name[step.model] for step in first.steps)


def _setting(config: ModelConfig, device_count: int) -> ServerSetting:
    devices = 0 if config.instance_kind == "KIND_CPU" else len(config.device_numbers) or device_count
    return ServerSetting(
        instance_count=config.instance_count, most_batch_count=config.most_batch_count,
        queue_delay_s=config.queue_delay_s, device_count=devices,
    )  # fmt: skip


def _shared_times(question: ServerQuestion, name: str) -> BatchTimes:
    return replace(question.times[name], sharing_ratio=question.sharing_ratio)


def _arrivals(rate_per_s: float, seed: int) -> Floats:
    arrivals: Floats = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, REQUESTS))
    return arrivals


Run = Callable[[Floats], tuple[ServedBatches, ...]]
"""What each model that requests pass through makes of arrivals."""


def _runner(question: ServerQuestion, config: ModelConfig, device_count: int = 0) -> Run:
    times, devices = _shared_times(question, config.name), device_count or question.device_count
    return lambda arrivals: (serve_batches(arrivals, config, times, items=question.item_count, device_count=devices,
                                           seed=question.seed),)  # fmt: skip


def _ensemble_run(question: ServerQuestion, chain: Sequence[ModelConfig]) -> Run:
    """Return the run of an ensemble, whose steps wait for those that give their inputs.

    Steps run on one device unless their configurations say otherwise, and hinder each other there.
    """
    after = step_waits(question.configs[0])

    def run(arrivals: Floats) -> tuple[ServedBatches, ...]:
        tenants = [
            Tenant(config=config, times=question.times[config.name], arrival_s=arrivals, after=before,
                   item_count=question.item_count, device_count=question.device_count)
            for config, before in zip(chain, after, strict=True)
        ]  # fmt: skip
        return serve_tenants(tenants, question.sharing_ratio)

    return run


def _capacity(question: ServerQuestion, chain: Sequence[ModelConfig]) -> float:
    """Return the rate at which instances, or the devices that models share, are always busy with the largest batches.

    Those are what batches grow to while requests wait, also where a smaller one would serve more of them.
    """
    device_work: dict[object, tuple[int, float]] = {}
    rates = []
    for config in chain:
        most = max(config.most_batch_count, 1) if config.has_dynamic_batching else question.item_count
        request_s = float(question.times[config.name].by_size(most)[most]) / (most // question.item_count)
        devices, count = len(config.device_numbers) or question.device_count, config.instance_count
        if config.instance_kind == "KIND_CPU":
            rates.append(count / request_s)
            continue
        rates.append(devices * _together(count, question) / request_s)
        for device in config.device_numbers or range(devices):
            instances, work_s = device_work.get(device, (0, 0.0))
            device_work[device] = instances + count, work_s + request_s / devices
    return min([*rates, *(_together(count, question) / work_s for count, work_s in device_work.values())])


def _together(count: int, question: ServerQuestion) -> float:
    """Return what so many busy instances of a device do, of what one does alone."""
    return count / (1 + question.sharing_ratio * (count - 1))


def _latency(served: Sequence[ServedBatches]) -> Floats:
    """Return the time from the arrival of a request to its last result, those that come first left out."""
    latency: Floats = np.max([batches.end_s for batches in served], 0) - np.min(
        [batches.arrival_s for batches in served], 0
    )
    return latency[round(RAMP * REQUESTS) :]


def _point(run: Run, rate_per_s: float, question: ServerQuestion) -> LoadPoint:
    served = run(_arrivals(rate_per_s, question.seed))
    steady, latency, busy = slice(round(RAMP * REQUESTS), None), _latency(served), []
    for config, batches in zip(_chain(question), served, strict=True):
        spans = np.unique(np.stack([batches.start_s, batches.end_s], 1)[steady], axis=0)
        length_s = float(spans[:, 1].max() - spans[:, 0].min())
        is_host = config.instance_kind == "KIND_CPU"
        devices = 1 if is_host else len(config.device_numbers) or question.device_count
        busy.append(float((spans[:, 1] - spans[:, 0]).sum()) / (length_s * config.instance_count * devices))
    return LoadPoint(
        rate_per_s=rate_per_s, p50_s=float(np.quantile(latency, 0.5)), p99_s=float(np.quantile(latency, 0.99)),
        mean_batch=float(served[-1].batch_count[steady].mean()), busy_ratio=min(max(busy), 1.0),
    )  # fmt: skip


def _highest(run: Run, capacity: float, question: ServerQuestion) -> float:
    """Return the highest rate, to three digits, at which the 99th percentile meets the limit; 0 where no rate does."""

    def is_within(rate_per_s: float) -> bool:
        tail_s = float(np.quantile(_latency(run(_arrivals(rate_per_s, question.seed))), 0.99))
        return question.limit_s is not None and tail_s <= question.limit_s

    low, high = three_digits(capacity / 1000), capacity
    if not is_within(low):
        return 0.0
    while (middle := rate_between(low, high, 0.01)) is not None:
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return low


def _cheapest(question: ServerQuestion, config: ModelConfig) -> tuple[ServerSetting, float, int]:
    """Return the setting of fewest devices, then instances, then lowest tail, its tail, and how many were tried.

    Raises:
        SpecError: none meets the limit.
    """
    most = max(config.most_batch_count, 1)
    sizes = sorted({size for size in (1, 2, 4, 8, 16, 32, 64, 128) if question.item_count <= size < most} | {most})
    arrivals, looked, error = _arrivals(question.rate_per_s, question.seed), 0, None
    assert question.limit_s is not None
    host = config.instance_kind == "KIND_CPU"
    for devices in DEVICES[:1] if host else DEVICES:
        grid = [
            with_batching(config, instances=count, most_batch=size, queue_delay_s=delay_s, device_count=devices)
            for count, size, delay_s in product(INSTANCES, sizes, DELAYS_S) if size > 1 or not delay_s
        ]  # fmt: skip
        able = [
            setting
            for setting in grid
            if _capacity(replace(question, device_count=devices), [setting]) > question.rate_per_s
        ]
        looked += len(able)

        def run(setting: ModelConfig, devices: int = devices) -> ServedBatches:
            return _runner(question, setting, devices)(arrivals)[0]

        try:
            best, tail = cheapest(able or grid[:1], run, limit_s=question.limit_s, ramp_ratio=RAMP)
        except SpecError as problem:
            error = problem
        else:
            return _setting(best, devices), tail, looked
    raise SpecError(f"{error}, on the host" if host else f"{error}, on {DEVICES[-1]} devices")


def _outcome(name: str, rate_per_s: float, latency_s: Floats, deadline_s: float | None) -> StreamOutcome:
    return StreamOutcome(
        name=name, rate_per_s=rate_per_s, p50_s=float(np.quantile(latency_s, 0.5)),
        p99_s=float(np.quantile(latency_s, 0.99)), deadline_s=deadline_s,
        missed_ratio=float((latency_s > deadline_s).mean()) if deadline_s is not None else 0.0,
    )  # fmt: skip


def _shared(question: ServerQuestion) -> PlannedServer:
    """Return what models on one device, or streams of one, see of each other."""
    names = [config.name for config in question.configs]
    if question.configs[0].steps:
        raise SpecError("--stream: streams of an ensemble are not modelled; give --rate")
    if question.device_count > 1:
        raise SpecError("--devices: streams and several models are answered for on one device; leave it out")
    streams = question.streams or tuple(
        Stream(name=name, model=name, rate_per_s=question.rate_per_s, deadline_s=question.limit_s) for name in names
    )
    if not all(stream.rate_per_s for stream in streams):
        raise SpecError("inference-server: several models need loads; give --stream NAME@MODEL=RATE/s[:DEADLINE]")
    streams_of: dict[str, list[Stream]] = {name: [] for name in names}
    for stream in streams:
        if (stream.model or names[0]) not in streams_of:
            raise SpecError(f"--stream {stream.name}: asks the model {stream.model!r}; there are {', '.join(names)}")
        streams_of[stream.model or names[0]].append(stream)
    tenants, owners = [], []
    length_s = REQUESTS / sum(stream.rate_per_s for stream in streams)
    for place, config in enumerate(question.configs):
        if not streams_of[config.name]:
            continue
        moments, rows = _merged(streams_of[config.name], length_s, bool(question.streams), question.seed + place)
        tenants.append(Tenant(config=config, times=question.times[config.name], arrival_s=moments,
                              item_count=question.item_count))  # fmt: skip
        owners.append(rows)
    outcomes = []
    for tenant, rows, served in zip(tenants, owners, serve_tenants(tenants, question.sharing_ratio), strict=True):
        for place, stream in enumerate(streams_of[tenant.config.name]):
            outcomes.append(
                _outcome(stream.name, stream.rate_per_s, served.latency_s[rows == place], stream.deadline_s)
            )
    return PlannedServer(
        models=tuple(names), setting=_setting(question.configs[0], question.device_count), how=question.how,
        sharing_ratio=question.sharing_ratio, is_sharing_assumed=question.is_sharing_assumed,
        capacity_per_s=_capacity(question, question.configs[:1]), loads=(), asked=None, streams=tuple(outcomes),
        steps=(),
        limit_s=question.limit_s, highest_per_s=None, cheapest=None, cheapest_p99_s=None, looked_count=0,
        config=model_config_text(question.configs[0]),
    )  # fmt: skip


def _merged(streams: Sequence[Stream], length_s: float, is_even: bool, seed: int) -> tuple[Floats, np.ndarray]:
    """Return the arrivals of streams in order, and the stream of each; sensors begin at moments of their own."""
    draw = np.random.default_rng(seed)
    parts = []
    for stream in streams:
        count = max(round(length_s * stream.rate_per_s), 100)
        gaps = np.ones(count) if is_even else draw.exponential(1.0, count)
        parts.append((np.cumsum(gaps) - 1 + draw.random()) / stream.rate_per_s)
    moments = np.maximum(np.concatenate(parts), 0.0)
    order = np.argsort(moments, kind="stable")
    return moments[order], np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]
