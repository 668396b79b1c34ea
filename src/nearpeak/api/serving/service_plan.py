"""Plans of services: latencies under a load, the highest rate within limits, and the layout that serves it best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.api.serving.service_energy import pooled_power_w, run_power_w
from nearpeak.api.serving.service_neighbour import Asked, nearest_point
from nearpeak.api.serving.service_pools import PooledService, pooled_services
from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.api.serving.service_runs import Service
from nearpeak.api.serving.serving_plan import step_table, trust_of
from nearpeak.core.systems.ownership import Ownership
from nearpeak.core.systems.service import PlannedServing, ServiceTimeline, ServingOption
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.models.collective import joined_device_count
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.systems.serving.step_latency import FAMILIES

TOLERANCE_RATIO = 0.03
"""Width at which the search for a rate ends."""
STRETCHES, MOST_SPANS = 240, 20_000
"""Stretches of a timeline, and most steps of one that is written for a viewer."""
_FORMATS = {"fp8": "fp8_tensor", "int8": "int8_row", "int4": "int4_weight_only", "mxfp4": "mxfp4_weight_only"}
"""Schemes that deployments mean by a bare name of a format."""


def weight_scheme(name: str) -> str:
    """Return the scheme that a name of deployed weights means.

    >>> weight_scheme("fp8"), weight_scheme("bf16")
    ('fp8_tensor', 'bf16')
    """
    return _FORMATS.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Devices that a service is planned on, what they cost, and how they may be laid out."""

    target: Target
    """Device."""
    device_count: int
    """Devices."""
    layouts: tuple[ServingLayout, ...] = ()
    """Layouts of a replica that are compared; those with each power of two of devices where none."""
    base: ServingLayout = ServingLayout()  # noqa: RUF009 — immutable
    """Formats of those layouts."""
    pools: str = ""
    """Pools of a disaggregated service in words; empty for none."""
    fabric: str = ""
    """Network between the nodes of pools."""
    usd_per_device_hour: float | None = None
    """Price of one device."""
    price_source: str = ""
    """Where that price was found, and when."""
    ownership: Ownership | None = None
    """What a device costs that is bought and powered."""


def plan_serving(model: str | TransformerShape, fleet: Fleet, question: ServiceQuestion) -> PlannedServing:
    """Return what a service reaches on so many devices, by the layout that serves the highest rate.

    With requests, a rate or clients that load is served; otherwise the highest rate within the limits is searched for.

    Raises:
        SpecError: no layout can serve; the message says why each cannot.
    """
    shape, target = shape_of_model(model), fleet.target
    if not shape.is_causal:
        raise SpecError(f"plan serve: {shape.name} is an encoder, which generates no tokens")
    if not question.costs.policy:
        raise SpecError(f'engine {question.engine!r}: states no scheduling policy; add policy = "vllm" or another')
    if question.is_search and not question.limits.items():
        raise SpecError("plan serve: give a load (--trace, --rate or --concurrency) or limits (--slo), or both")
    if question.is_search and question.settings.least_replica_count:
        raise SpecError("--settings scale: replicas follow a load that is given; add --rate or --trace")
    _check_weights((*fleet.layouts, fleet.base), target)
    limit, longest = question.settings.context_token_count or shape.position_count, question.longest_context()
    if limit and longest > limit:
        raise SpecError(
            f"plan serve: the longest request has {longest:,} tokens with its output; the context of {shape.name} "
            f"holds {limit:,} (--settings context=… states another)"
        )
    options: list[tuple[ServingOption, float, Outcome, Service | PooledService]] = []
    refused: dict[str, str] = {}
    for words, service in _services(shape, fleet, question).items():
        try:
            if isinstance(service, SpecError):
                raise service
            options.append((*_option(service, question), service))
        except (SpecError, NotModelledError) as error:
            refused[words] = str(error)
    if not options:
        reasons = "; ".join(f"{words}: {reason}" for words, reason in refused.items())
        raise SpecError(f"plan serve: {shape.name} on {fleet.device_count} × {target.name} cannot be served: {reasons}")
    options.sort(key=lambda choice: -_merit(choice[0], question))
    return _planned(fleet, options, refused, question)


def _check_weights(layouts: Sequence[ServingLayout], target: Target) -> None:
    """Refuse products in FP8 on a device whose tensor units have none."""
    for layout in layouts:
        form = layout.weight_format
        if form.startswith(("fp8", "mxfp8")) and "tensor.bf16" in target.peaks and "tensor.fp8" not in target.peaks:
            raise SpecError(
                f"{target.name}: weights {form}: no document states a rate of FP8 products; --weights int8 or int4 has "
                "products that it states, bf16 always"
            )


def shape_of_model(model: str | TransformerShape) -> TransformerShape:
    """Return the extents of a model by its name, `hf:TYPE` or config.json."""
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    return shape_of(model) if isinstance(model, str) else model


def _services(
    shape: TransformerShape, fleet: Fleet, question: ServiceQuestion
) -> Mapping[str, Service | PooledService | SpecError]:
    """Return the services that are compared by their layout in words; an error for one that devices do not make up."""
    if fleet.pools:
        return dict(
            pooled_services(fleet.pools, shape, fleet.target, fleet.device_count, fleet.base, question, fleet.fabric)
        )
    services: dict[str, Service | PooledService | SpecError] = {}
    for layout in fleet.layouts or _layouts(fleet):
        replicas, rest = divmod(fleet.device_count, layout.device_count)
        if rest:
            services[layout.words] = SpecError(
                f"replicas of {layout.device_count} devices do not make up {fleet.device_count}"
            )
        else:
            services[layout.words] = Service(shape=shape, target=fleet.target, layout=question.adapted(layout),
                                          replica_count=replicas, question=question)  # fmt: skip
    return services


def _layouts(fleet: Fleet) -> tuple[ServingLayout, ...]:
    """Return layouts with each power of two of devices of one node in a replica."""
    count, base = fleet.device_count, fleet.base
    degrees = [1 << place for place in range(joined_device_count(fleet.target).bit_length())]
    return tuple(replace(base, tp=degree, ep=degree if base.ep > 1 else 1) for degree in degrees if count % degree == 0)


def _option(
    service: Service | PooledService, question: ServiceQuestion
) -> tuple[ServingOption, float, Outcome]:  # fmt: skip
    """Return what one layout reaches on all devices, the rate of the load that it is reached at, and a run of it."""
    if question.is_search:
        return _searched(service, question)
    seeds = question.seeds if question.requests is None else question.seeds[:1]
    outcomes = [service.run(question.rate_per_s, seed) for seed in seeds]
    return service.option(outcomes), question.rate_per_s, outcomes[0]


def _searched(service: Service | PooledService, question: ServiceQuestion) -> tuple[ServingOption, float, Outcome]:
    """Return the highest rate within the limits, with the latencies at it; else those at the lowest rate tried."""
    from nearpeak.systems.serving.serving_capacity import capacity

    ceiling = _ceiling(service, question)
    reached = capacity(
        service.run, question.limits, low_per_s=ceiling / 100, high_per_s=ceiling, seeds=question.seeds,
        share=question.share, tolerance_ratio=TOLERANCE_RATIO, window=question.window(), bound=service.limiter,
    )  # fmt: skip
    rate, option = reached.rate_per_s, service.option(reached.outcomes)
    return replace(
        option, rate_per_s=rate, low_per_s=reached.low_per_s, high_per_s=reached.high_per_s, limiter=reached.limiter,
        output_tokens_per_s=rate * question.mean_lengths()[1],
    ), reached.tried_per_s, reached.outcomes[0]  # fmt: skip


def _ceiling(service: Service | PooledService, question: ServiceQuestion) -> float:
    """Return a rate that the service cannot reach: that of requests which always wait, and a little more."""
    inputs, outputs = (round(length) for length in question.mean_lengths())
    if isinstance(service, PooledService):  # one pool generates first tokens alone, the other computes no prompts
        return min(_most_rate(service.prompts, inputs, 1), _most_rate(service.decodes, 1, outputs))
    return _most_rate(service, inputs, outputs)


def _most_rate(service: Service, inputs: int, outputs: int) -> float:
    """Return the requests per second of replicas that always have some waiting, and a little more."""
    from nearpeak.systems.serving.offline_throughput import best_throughput

    source = step_table(service.shape, service.target, service.question.costs, service.layout)
    engine, groups, shared = service.engine()[0], service.layout.attention_dp, 0.0
    if inputs > 1:
        shared = min(service.question.settings.prefix_token_count / inputs, 0.95)
    most = best_throughput(
        source, input_tokens=inputs, output_tokens=outputs, kv_tokens=service.kv_tokens(),
        sequence_limit=engine.sequence_count * groups, token_budget=engine.step_token_count * groups,
    )  # fmt: skip
    drafted = engine.step_tokens_ratio if outputs > 1 else 1.0
    return 1.05 * service.replica_count * most.output_tokens_per_s / outputs * drafted / (1 - shared)


def _merit(option: ServingOption, question: ServiceQuestion) -> float:
    """Return what layouts are compared by: rate within the limits, else how near the tails are to them, or tokens."""
    if question.is_search and option.rate_per_s:
        return option.rate_per_s
    late = [option.latencies_s[name][question.tail] / limit for name, limit in question.limits.items()
            if name in option.latencies_s]  # fmt: skip
    return -max(late) if late else option.output_tokens_per_s


def _planned(
    fleet: Fleet, options: Sequence[tuple[ServingOption, float, Outcome, Service | PooledService]],
    refused: Mapping[str, str],
    question: ServiceQuestion,
) -> PlannedServing:  # fmt: skip
    """Return the answer for the best layout, with the timeline and the power of its run."""
    from nearpeak.systems.serving.log_comparison import logged_latencies
    from nearpeak.systems.serving.run_timeline import step_spans

    best, rate_per_s, outcome, service = options[0]
    decoding = service.decodes if isinstance(service, PooledService) else service
    source = step_table(decoding.shape, decoding.target, question.costs, decoding.layout)
    served_s = best.latencies_s["latency"]["mean"] - best.latencies_s["queue"]["mean"]
    inputs, outputs = question.mean_lengths()
    count = max(round((best.rate_per_s or rate_per_s) / decoding.replica_count * served_s), 1)
    step = StepBatch.of_decode(count, kv_count=round(count * (inputs + outputs / 2)))
    seconds, wider = source.seconds(step), math.log(source.rank.costs.composition_ratio)
    if isinstance(service, PooledService):
        power_w = pooled_power_w(service, service.both(rate_per_s, question.seeds[0]))
    else:
        power_w = run_power_w(service, outcome)
    price = _price(fleet, power_w)
    priced = tuple(replace(option, usd_per_million_tokens=_usd(option, price)) for option, *_ in options)
    rate = best.output_tokens_per_s
    return PlannedServing(
        model=decoding.shape.name, target=fleet.target.name, device_count=fleet.device_count,
        engine=question.costs.name,
        load=question.words(), limits_s=dict(question.limits.items()), share=question.share, best=priced[0],
        options=priced, refused=dict(refused),
        parts_s=dict(zip(FAMILIES, source.parts_s(step)[:, 0].tolist(), strict=True)) | {"host": seconds.host_s},
        step_low_ratio=math.exp(-math.hypot(math.log(seconds.time_s / seconds.low_s), wider)),
        step_high_ratio=math.exp(math.hypot(math.log(seconds.high_s / seconds.time_s), wider)),
        trust=trust_of(source, fleet.target, count, round(inputs + outputs / 2)), usd_per_device_hour=price,
        energy_j_per_token=power_w * best.mean_device_count / rate if power_w and rate else None, power_w=power_w,
        request_energy_j=power_w * best.mean_device_count / best.rate_per_s if power_w and rate else None,
        logged=logged_latencies(outcome, question.measured_s), seeds=question.seeds, timeline=_timeline(outcome),
        spans=tuple(step_spans(outcome, MOST_SPANS)),
        neighbour=nearest_point(
            Asked(fleet.target, question.costs.name, decoding.shape, decoding.layout, inputs, count)
        ),
        price_source=fleet.price_source, notes=service.notes, is_searched=question.is_search,
        is_host_assumed=question.costs.is_assumed,
    )  # fmt: skip


def _price(fleet: Fleet, power_w: float | None) -> float | None:
    """Return the price of a device and hour: as given, or that of owning it, at its power in the run or at its limit.

    Raises:
        SpecError: electricity has a price, and nothing states the power.
    """
    from nearpeak.systems.serving.serving_cost import owned_price_per_hour

    owned, watts = fleet.ownership, power_w if power_w is not None else fleet.target.power_w
    if owned is None:
        return fleet.usd_per_device_hour
    if watts is None and owned.usd_per_kwh:
        raise SpecError(f"--owned: no document states the power of {fleet.target.name}; give --price instead")
    return owned_price_per_hour(
        owned.usd_per_device, owned.life_s, power_w=watts or 0.0, tariff_per_kwh=owned.usd_per_kwh,
        pue=owned.site_ratio,
    )  # fmt: skip


def _timeline(outcome: Outcome) -> ServiceTimeline:
    """Return batch, queue and cache over a run."""
    from nearpeak.systems.serving.run_timeline import timeline

    stretches = timeline(outcome, STRETCHES)
    blocks = outcome.engine.kv_block_count * len(outcome.unused_block_count)
    return ServiceTimeline(
        edge_s=tuple(stretches.edges_s.tolist()), decode_count=tuple(stretches.decode.tolist()),
        waiting_count=tuple(stretches.waiting.tolist()), kv_ratio=tuple((stretches.kv_blocks / blocks).tolist()),
    )  # fmt: skip


def _usd(option: ServingOption, price: float | None) -> float | None:
    from nearpeak.systems.serving.serving_cost import price_per_million_tokens

    if price is None or not option.output_tokens_per_s:
        return None
    return price_per_million_tokens(option.mean_device_count, price, option.output_tokens_per_s)
