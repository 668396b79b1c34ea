"""Plans of services: latencies under a load, the highest rate within limits, and the layout that serves it best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean
from typing import Any

from nearpeak.api.serving.request_service import POLICIES, engine_of
from nearpeak.api.serving.serving_plan import kv_token_count, step_table
from nearpeak.core.systems.service import PlannedServing, ServingOption
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.serving.latency_metrics import Limits, Window, steady, summary, throughput, whole
from nearpeak.systems.serving.loads.arrival_process import Lengths, closed_load, open_load
from nearpeak.systems.serving.request_columns import Requests
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.systems.serving.step_latency import FAMILIES

REQUEST_COUNTS = (300, 20_000)
"""Least and most requests of a load that is drawn."""
LOAD_S = 40.0
"""Length of a load that is drawn, in which as many requests come and go as run at once several times over."""
RAMP_RATIO = 0.2
"""Share of a drawn load that arrives before the service is in its steady state, and does not count."""
TOLERANCE_RATIO = 0.03
"""Width at which the search for a rate ends."""
_FORMATS = {"fp8": "fp8_tensor", "int8": "int8_row", "int4": "int4_weight_only", "mxfp4": "mxfp4_weight_only"}
"""Schemes that deployments mean by a bare name of a format."""


def weight_scheme(name: str) -> str:
    """Return the scheme that a name of deployed weights means.

    >>> weight_scheme("fp8"), weight_scheme("bf16")
    ('fp8_tensor', 'bf16')
    """
    return _FORMATS.get(name, name)


def plan_serving(
    model: str | TransformerShape, target: Target, device_count: int, *, engine: str = "vllm_v1",
    layouts: Sequence[ServingLayout] = (), base: ServingLayout | None = None, requests: Requests | None = None,
    rate_per_s: float = 0.0, concurrency: int = 0, input_tokens: Lengths = 1024, output_tokens: Lengths = 256,
    limits: Limits | None = None, share: float = 0.99, usd_per_device_hour: float | None = None,
    seeds: Sequence[int] = (0, 1), context_tokens: int = 0,
) -> PlannedServing:  # fmt: skip
    """Return what a service reaches on so many devices, by the layout that serves the highest rate.

    Args:
        layouts: layouts of a replica that are compared; those with each power of two of devices where none.
        base: formats of those layouts.
        requests: the load; without it arrivals are drawn at `rate_per_s`, or a closed loop of `concurrency` clients;
            without any, the highest rate within `limits` is searched for.
        limits: latencies that `share` of the requests must meet.

    Raises:
        SpecError: no layout can serve; the message says why each cannot.
    """
    shape = _shape_of(model)
    if not shape.is_causal:
        raise SpecError(f"plan serve: {shape.name} is an encoder, which generates no tokens")
    if engine not in POLICIES:
        raise SpecError(f"engine {engine!r}: has no scheduling policy; known: {', '.join(POLICIES)}")
    if requests is None and not rate_per_s and not concurrency and (limits is None or not limits.items()):
        raise SpecError("plan serve: give a load (--trace, --rate or --concurrency) or limits (--slo), or both")
    _check_weights((*layouts, base or ServingLayout()), target)
    candidates = tuple(layouts) or _layouts(device_count, base or ServingLayout())
    question = _Question(engine, requests, rate_per_s, concurrency, input_tokens, output_tokens, limits, share,
                         tuple(seeds), context_tokens)  # fmt: skip
    options, refused = [], {}
    for layout in candidates:
        try:
            options.append(_option(shape, target, device_count, layout, question))
        except (SpecError, NotModelledError) as error:
            refused[layout.words] = str(error)
    if not options:
        reasons = "; ".join(f"{words}: {reason}" for words, reason in refused.items())
        raise SpecError(f"plan serve: {shape.name} on {device_count} × {target.name} cannot be served: {reasons}")
    priced = [replace(option, usd_per_million_tokens=_usd(option, device_count, usd_per_device_hour))
              for option in options]  # fmt: skip
    priced.sort(key=lambda option: -_merit(option, question))
    return _planned(shape, target, device_count, priced, refused, question, usd_per_device_hour)


def _check_weights(layouts: Sequence[ServingLayout], target: Target) -> None:
    """Refuse products in FP8 on a device whose tensor units have none."""
    for layout in layouts:
        form = layout.weight_format
        if form.startswith(("fp8", "mxfp8")) and "tensor.bf16" in target.peaks and "tensor.fp8" not in target.peaks:
            raise SpecError(
                f"{target.name}: weights {form}: no document states a rate of FP8 products; --weights int8 or int4 has "
                "products that it states, bf16 always"
            )


class _Question:
    """What is asked of each layout."""

    def __init__(
        self, engine: str, requests: Requests | None, rate_per_s: float, concurrency: int, inputs: Lengths,
        outputs: Lengths, limits: Limits | None, share: float, seeds: tuple[int, ...], context_tokens: int,
    ) -> None:  # fmt: skip
        self.engine, self.requests, self.rate_per_s, self.concurrency = engine, requests, rate_per_s, concurrency
        self.inputs, self.outputs, self.limits, self.share = inputs, outputs, limits or Limits(), share
        self.seeds, self.context_tokens = seeds, context_tokens

    @property
    def is_search(self) -> bool:
        """Whether the highest rate within limits is searched for."""
        return self.requests is None and not self.rate_per_s and not self.concurrency

    def load(self, rate_per_s: float, seed: int, clients: int = 0) -> Requests:
        """Return the requests of a rate, or of so many clients, and a seed."""
        if self.requests is not None:
            return self.requests
        lengths: dict[str, Any] = {"input_count": self.inputs, "output_count": self.outputs, "seed": seed}
        if clients:
            return closed_load(clients, max(REQUEST_COUNTS[0], 4 * clients), **lengths)
        count = min(max(round(rate_per_s * LOAD_S), REQUEST_COUNTS[0]), REQUEST_COUNTS[1])
        return open_load(rate_per_s, count, **lengths)

    def words(self) -> str:
        """Return the load in words."""
        if self.requests is not None:
            count, rate = len(self.requests.arrival_s), self.requests.rate
            words = f"{count:,} request{'s' * (count > 1)} of a trace, "
            return words + (f"{rate:.3g}/s on average" if isfinite(rate) else "all at once")
        lengths = f"{_length_words(self.inputs)} tokens in, {_length_words(self.outputs)} out"
        if self.concurrency:
            return f"closed loop of {self.concurrency} client{'s' * (self.concurrency > 1)}, {lengths}"
        kind = (
            "highest Poisson rate within the limits" if self.is_search else f"Poisson arrivals at {self.rate_per_s:g}/s"
        )
        return f"{kind}, {lengths}"


def _length_words(lengths: Lengths) -> str:
    return f"{lengths:,}" if isinstance(lengths, int) else f"{sum(lengths) / len(lengths):,.0f} (drawn)"


def _shape_of(model: str | TransformerShape) -> TransformerShape:
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    return shape_of(model) if isinstance(model, str) else model


def _layouts(device_count: int, base: ServingLayout) -> tuple[ServingLayout, ...]:
    """Return layouts with each power of two of devices of one node in a replica."""
    degrees = [1 << place for place in range(4) if device_count % (1 << place) == 0]
    return tuple(replace(base, tp=degree, ep=degree if base.ep > 1 else 1) for degree in degrees)


def _option(
    shape: TransformerShape, target: Target, device_count: int, layout: ServingLayout, question: _Question
) -> ServingOption:  # fmt: skip
    """Return what one layout reaches on all devices."""
    replicas = device_count // layout.device_count
    if replicas * layout.device_count != device_count:
        raise SpecError(f"replicas of {layout.device_count} devices do not make up {device_count}")
    source = step_table(shape, target, question.engine, layout)
    kv_tokens = kv_token_count(source.rank, target, token_budget=source.rank.costs.token_budget)
    run = _runner(shape, target, layout, replicas, question)
    if question.is_search:
        return _searched(source, run, kv_tokens, layout, replicas, question)
    if question.concurrency:
        return _closed_loop(run, kv_tokens, layout, replicas, question)
    outcomes = [run(question.rate_per_s, seed) for seed in (question.seeds if question.requests is None else (0,))]
    rates = [throughput(outcome, _window(question)(outcome))["requests"] for outcome in outcomes]
    return _served(outcomes[0], rates, kv_tokens, layout, replicas, question)


def _runner(
    shape: TransformerShape, target: Target, layout: ServingLayout, replicas: int, question: _Question
) -> Callable[..., Outcome]:  # fmt: skip
    """Return the function that serves the load of a rate and a seed, or that of clients of one replica."""
    from nearpeak.systems.serving.serving_run import serve

    longest = max(question.context_tokens, _longest(question), 2)
    settings, grid = engine_of(
        shape, target.name, question.engine, layout, context=1 << (longest - 1).bit_length(),
        context_limit=question.context_tokens,
    )  # fmt: skip

    def run(rate_per_s: float, seed: int, clients: int = 0) -> Outcome:
        return serve(question.load(rate_per_s, seed, clients), settings, grid,
                     replica_count=1 if clients else replicas, router="least_kv", seed=seed,
                     is_logged=True)  # fmt: skip

    return run


def _longest(question: _Question) -> int:
    """Return the longest context of the load."""
    if question.requests is not None:
        return int((question.requests.input_count + question.requests.output_count).max())
    most = [lengths if isinstance(lengths, int) else max(lengths) for lengths in (question.inputs, question.outputs)]
    return int(sum(most))


def _mean_context(question: _Question) -> float:
    """Return the tokens that a sequence holds on average while it generates."""
    if question.requests is not None:
        return float((question.requests.input_count + question.requests.output_count / 2).mean())
    inputs, outputs = (lengths if isinstance(lengths, int) else fmean(lengths)
                       for lengths in (question.inputs, question.outputs))  # fmt: skip
    return inputs + outputs / 2


def _window(question: _Question, clients: int = 0) -> Callable[[Outcome], Window]:
    """Return the function that gives the part of a run that counts."""
    if question.requests is not None:
        return whole
    if clients:
        return lambda outcome: steady(outcome, ramp_count=clients)
    return lambda outcome: steady(outcome, ramp_count=round(RAMP_RATIO * len(outcome.requests.arrival_s)))


def _closed_loop(
    run: Callable[..., Outcome], kv_tokens: int, layout: ServingLayout, replicas: int, question: _Question
) -> ServingOption:  # fmt: skip
    """Return what clients reach that are spread over the replicas and stay at theirs; latencies of the fullest replica.

    Rates are clients over the mean time of a request (Little's law): equal requests end in waves, which no window
    counts evenly.
    """
    fewer, extra = divmod(question.concurrency, replicas)
    spread = [(clients, count) for clients, count in ((fewer + 1, extra), (fewer, replicas - extra)) if clients * count]
    rates = [0.0] * len(question.seeds)
    options = []
    for clients, count in spread:
        for place, seed in enumerate(question.seeds):
            option = _served(run(0.0, seed, clients), [0.0], kv_tokens, layout, replicas, question, clients)
            rates[place] += count * clients / option.latencies_s["latency"]["mean"]
            options.append(option)
    outputs = question.outputs if isinstance(question.outputs, int) else fmean(question.outputs)
    return replace(
        options[0], rate_per_s=fmean(rates), low_per_s=min(rates), high_per_s=max(rates),
        output_tokens_per_s=fmean(rates) * outputs,
    )  # fmt: skip


def _searched(
    source: Any, run: Callable[[float, int], Outcome], kv_tokens: int, layout: ServingLayout, replicas: int,
    question: _Question,
) -> ServingOption:  # fmt: skip
    """Return the highest rate within the limits."""
    from nearpeak.systems.serving.offline_throughput import best_throughput
    from nearpeak.systems.serving.serving_capacity import capacity

    inputs, outputs = (round(float(sum(lengths)) / len(lengths)) if not isinstance(lengths, int) else lengths
                       for lengths in (question.inputs, question.outputs))  # fmt: skip
    costs = source.rank.costs
    most = best_throughput(
        source, input_tokens=inputs, output_tokens=outputs, kv_tokens=kv_tokens, sequence_limit=costs.sequence_limit,
        token_budget=costs.token_budget,
    )  # fmt: skip
    ceiling = 1.05 * replicas * most.output_tokens_per_s / outputs
    reached = capacity(
        run, question.limits, low_per_s=ceiling / 100, high_per_s=ceiling, seeds=question.seeds, share=question.share,
        tolerance_ratio=TOLERANCE_RATIO, window=_window(question),
    )  # fmt: skip
    rate = reached.rate_per_s
    option = _served(run(rate or ceiling / 100, question.seeds[0]), [rate], kv_tokens, layout, replicas, question)
    return replace(
        option, rate_per_s=rate, low_per_s=reached.low_per_s, high_per_s=reached.high_per_s, limiter=reached.limiter,
        output_tokens_per_s=rate * outputs,
    )  # fmt: skip


def _served(
    outcome: Outcome, rates: Sequence[float], kv_tokens: int, layout: ServingLayout, replicas: int,
    question: _Question, clients: int = 0,
) -> ServingOption:  # fmt: skip
    """Return what a run shows; a load that is given has no interval of its rate but the range of its draws."""
    from nearpeak.systems.serving.serving_capacity import bound_resource

    window = _window(question, clients)(outcome)
    return ServingOption(
        layout=layout, replica_count=replicas, kv_token_count=kv_tokens, rate_per_s=fmean(rates),
        low_per_s=min(rates), high_per_s=max(rates),
        output_tokens_per_s=throughput(outcome, window)["output_tokens"], latencies_s=summary(outcome, window),
        limiter=bound_resource(outcome),
    )  # fmt: skip


def _merit(option: ServingOption, question: _Question) -> float:
    """Return what layouts are compared by: rate within the limits, else the share of requests and their speed."""
    if question.is_search:
        return option.rate_per_s
    late = [option.latencies_s[name]["p99"] / limit for name, limit in question.limits.items()
            if name in option.latencies_s]  # fmt: skip
    return -max(late) if late else option.output_tokens_per_s


def _usd(option: ServingOption, device_count: int, price: float | None) -> float | None:
    from nearpeak.systems.serving.serving_cost import price_per_million_tokens

    if price is None or not option.output_tokens_per_s:
        return None
    return price_per_million_tokens(device_count, price, option.output_tokens_per_s)


def _planned(
    shape: TransformerShape, target: Target, device_count: int, options: Sequence[ServingOption],
    refused: Mapping[str, str], question: _Question, price: float | None,
) -> PlannedServing:  # fmt: skip
    """Return the answer for the best layout."""
    best = options[0]
    source = step_table(shape, target, question.engine, best.layout)
    served_s = best.latencies_s["latency"]["mean"] - best.latencies_s["queue"]["mean"]
    count = max(round(best.rate_per_s / best.replica_count * served_s), 1)
    step = StepBatch.of_decode(count, kv_count=round(count * _mean_context(question)))
    seconds = source.seconds(step)
    parts = dict(zip(FAMILIES, source.parts_s(step)[:, 0].tolist(), strict=True)) | {"host": seconds.host_s}
    return PlannedServing(
        model=shape.name, target=target.name, device_count=device_count, engine=question.engine, load=question.words(),
        limits_s=dict(question.limits.items()), share=question.share, best=best, options=tuple(options),
        refused=dict(refused), parts_s=parts, step_low_ratio=seconds.low_s / seconds.time_s,
        step_high_ratio=seconds.high_s / seconds.time_s, trust={}, usd_per_device_hour=price, seeds=question.seeds,
    )  # fmt: skip
