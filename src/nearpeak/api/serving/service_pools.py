"""Disaggregated services: a pool that computes prompts, one that decodes, and the links that carry caches between."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.api.serving.service_runs import Service, class_tails, reused_ratio, served
from nearpeak.core.systems.service import ServingOption
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.systems.serving.serving_outcome import Outcome

if TYPE_CHECKING:
    from nearpeak.systems.serving.disaggregation import CacheLink, DisaggregatedOutcome

_POOL = re.compile(r"(?:(\d+)x)?(tp|dep)(\d+)", re.IGNORECASE)
NAMES = ("prefill", "decode")


def pools_of(text: str, base: ServingLayout) -> tuple[tuple[ServingLayout, int], ...]:
    """Return layout and replicas of both pools that words such as `prefill=2xTP2,decode=1xTP4` state; 0 for any number.

    `DEP8` is eight devices that attend to sequences of their own and share the experts.

    >>> [(layout.tp, count) for layout, count in pools_of("prefill=2xTP2,decode=1xTP4", ServingLayout())]
    [(2, 2), (4, 1)]
    >>> pools_of("prefill=2xTP2", ServingLayout())
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --disaggregate 'prefill=2xTP2' is not of the form prefill=2xTP2,decode=1xTP4 or \
prefill=TP2,decode=TP4
    """
    stated: dict[str, tuple[ServingLayout, int]] = {}
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        match = _POOL.fullmatch(value)
        if name not in NAMES or name in stated or match is None or match[1] == "0" or not int(match[3]):
            stated.clear()
            break
        degree = int(match[3])
        shared = degree if match[2].lower() == "dep" else 1
        stated[name] = (replace(base, tp=degree, pp=1, ep=shared, attention_dp=shared), int(match[1] or 0))
    if len(stated) != len(NAMES):
        raise SpecError(
            f"--disaggregate {text!r} is not of the form prefill=2xTP2,decode=1xTP4 or prefill=TP2,decode=TP4"
        )
    return tuple(stated[name] for name in NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledService:
    """A pool of replicas that compute prompts, one that decodes, and what lies between them."""

    prompts: Service
    """First pool."""
    decodes: Service
    """Second pool."""
    fabric: str = ""
    """Network between nodes, where the devices are those of several."""

    @property
    def device_count(self) -> int:
        """Devices of both pools."""
        return self.prompts.device_count + self.decodes.device_count

    @property
    def question(self) -> ServiceQuestion:
        """Load and settings."""
        return self.prompts.question

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed, a sentence each."""
        from nearpeak.units import show

        tokens, link = self.question.mean_lengths()[0], self.link()
        size, rate = tokens * link.kv_token_bytes, link.bandwidth_bytes_per_s
        further = [f"decode pool: {note}" for note in self.decodes.notes if note not in self.prompts.notes]
        return (
            *self.prompts.notes,
            *further,
            f"the cache of a prompt of {tokens:,.0f} tokens is {show(float(f'{size:.3g}'), 'B')} a device, "
            f"{show(float(f'{size / rate:.2g}'), 's')} over its link; layers go as they are computed, prompts in turn",
        )

    def link(self) -> "CacheLink":
        """Return what carries the caches of prompts: the links of the devices, each with its own share of the heads.

        Raises:
            SpecError: the devices are more than a node has, and no network is named.
        """
        from nearpeak.systems.serving.cache_memory import cache_token_bytes
        from nearpeak.systems.serving.disaggregation import CacheLink
        from nearpeak.targets.clusters import cluster_of

        layout, shape = self.prompts.layout, self.prompts.shape
        whole = cluster_of(f"{self.device_count}x{self.prompts.target.name}", self.fabric).fabric
        tier = whole.tiers[whole.tier_of_span(self.device_count)]
        return CacheLink(
            kv_token_bytes=cache_token_bytes(shape, number_format=layout.kv_format, tp=layout.attention_tp),
            bandwidth_bytes_per_s=tier.device_bandwidth_bytes_per_s * tier.reached_ratio, latency_s=tier.latency_s,
            layer_count=shape.layer_count,
        )  # fmt: skip

    def both(self, rate_per_s: float, seed: int) -> "DisaggregatedOutcome":
        """Return what the pools make of the load of a rate and a seed."""
        from nearpeak.systems.serving.disaggregation import serve_disaggregated

        first, second = self.prompts.pool(), self.decodes.pool()
        first = replace(first, engine=replace(first.engine, draft_token_count=0, draft_s=0.0))  # its one token is sure
        second = replace(second, engine=replace(second.engine, request_s=0.0))  # the first pool has taken it in
        load = self.question.load(rate_per_s, seed)
        return serve_disaggregated(load, first, second, self.link(), is_logged=True)

    def run(self, rate_per_s: float, seed: int) -> Outcome:
        """Return the requests of a load as their users see them."""
        return self.seen(self.both(rate_per_s, seed))

    def seen(self, outcome: "DisaggregatedOutcome") -> Outcome:
        """Return the requests as their users see them, with engine and steps of the pool that is busier."""
        busiest = max(filter(None, (outcome.prompts, outcome.decodes)), key=_busy)
        return replace(
            outcome.requests, engine=busiest.engine, steps=busiest.steps, step_count=busiest.step_count,
            busy_s=busiest.busy_s, rented_s=busiest.rented_s,
        )  # fmt: skip

    def limiter(self, outcome: Outcome) -> str:
        """Return what holds requests up, and in which pool."""
        from nearpeak.systems.serving.serving_capacity import bound_resource

        decodes = outcome.steps is not None and bool(outcome.steps.decode_count.any())
        return f"{bound_resource(outcome)} of the {NAMES[decodes]} pool"

    def option(self, outcomes: Sequence[Outcome]) -> ServingOption:
        """Return what runs of one load under several seeds show."""
        return ServingOption(
            layout=self.prompts.layout, replica_count=self.prompts.replica_count, decode_layout=self.decodes.layout,
            decode_replica_count=self.decodes.replica_count, kv_token_count=self.decodes.kv_tokens(),
            limiter=self.limiter(outcomes[0]), mean_device_count=float(self.device_count),
            class_latencies_s=class_tails(outcomes, self.question), reused_ratio=reused_ratio(outcomes),
            **served(outcomes, self.question),
        )  # fmt: skip


def _busy(outcome: Outcome) -> float:
    return float(outcome.busy_s.sum() / outcome.rented_s.sum())


def pooled_services(
    text: str, shape: TransformerShape, target: Target, device_count: int, base: ServingLayout,
    question: ServiceQuestion, fabric: str,
) -> Iterator[tuple[str, PooledService]]:  # fmt: skip
    """Yield the service that words state, or where they leave replicas open, those that take all devices.

    Raises:
        SpecError: the words state no pools, other devices, or settings that are not modelled beside them.
    """
    if question.settings.least_replica_count:
        raise SpecError("--disaggregate: --settings scale is not modelled beside it; give one of the two")
    (first, prompts), (second, decodes) = pools_of(text, base)
    splits = [
        (count, rest // second.device_count) for count in range(1, device_count // first.device_count + 1)
        if (rest := device_count - count * first.device_count) > 0 and rest % second.device_count == 0
        and prompts in (0, count) and decodes in (0, rest // second.device_count)
    ]  # fmt: skip
    if not splits:
        stated = prompts * first.device_count + decodes * second.device_count
        words = f"takes {stated} devices" if prompts and decodes else "does not make up the devices"
        raise SpecError(f"--disaggregate {text}: {words}, --on names {device_count}")
    for pair in splits:
        pools = [Service(shape=shape, target=target, layout=question.adapted(layout), replica_count=count,
                         question=question) for layout, count in zip((first, second), pair, strict=True)]  # fmt: skip
        words = f"prefill {pair[0]} × ({first.words}), decode {pair[1]} × ({second.words})"
        yield words, PooledService(prompts=pools[0], decodes=pools[1], fabric=fabric)
