"""Runs of a service: requests of a question through replicas of an engine, whole or in pools, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from nearpeak.api.serving.request_service import engine_of
from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.api.serving.serving_plan import kv_token_count, step_table
from nearpeak.core.systems.service import ServingOption
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.systems.serving.latency_metrics import quantile, request_metric, summary, throughput
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome

if TYPE_CHECKING:
    from nearpeak.systems.serving.disaggregation import Pool
    from nearpeak.systems.serving.step_grid import StepGrid

DRAFT_SEQUENCES = 16
"""Sequences at which a draft's time is taken; up to some tens its weights are read, whatever their number."""
CLASS_NAMES = ("urgent", "others")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Replicas of one layout on a number of devices."""

    shape: TransformerShape
    """Model."""
    target: Target
    """Device."""
    layout: ServingLayout
    """Layout of a replica."""
    replica_count: int
    """Replicas."""
    question: ServiceQuestion
    """Load and settings."""

    def engine(self) -> "tuple[Engine, StepGrid]":
        """Return the engine as it is configured, and the table of its step times.

        Raises:
            SpecError: prompts are to wait for those of other ranks, and there are none.
        """
        settings = self.question.settings
        if settings.rank_wait_count is not None and self.layout.attention_dp == 1:
            raise SpecError(
                "--settings rank_wait: there are no attention data-parallel ranks to wait for; state some, e.g. "
                "--parallel tp=8,ep=8,attention_dp=8"
            )
        longest = max(settings.context_token_count, self.question.longest_context(), 2)
        engine, grid = engine_of(
            self.shape, self.target, self.question.costs, self.layout, context=1 << (longest - 1).bit_length(),
            blocks=settings.kv_block_count, block_tokens=settings.block_token_count,
            step_tokens=settings.step_token_count, sequences=settings.sequence_count,
            context_limit=settings.context_token_count,
        )  # fmt: skip
        wait = settings.rank_wait_count
        return replace(
            engine, is_chunked=settings.is_chunked, has_prefix_cache=settings.has_prefix_cache,
            draft_token_count=settings.draft_token_count, acceptance_ratio=settings.acceptance_ratio,
            draft_s=self._draft_s(), adapter_count=settings.adapter_slot_count, adapter_load_s=settings.adapter_load_s,
            rank_wait_step_count=engine.rank_wait_step_count if wait is None else wait,
        ), grid  # fmt: skip

    def _draft_s(self) -> float:
        """Return the kernels' time of one drafted token of a step.

        EAGLE's and MTP's head is one more layer of the model with its output head; a draft model runs whole.
        """
        draft = self.question.settings.draft
        if draft in ("", "ngram"):
            return 0.0
        shape: TransformerShape | str = draft
        if draft in ("eagle", "mtp"):
            experts = self.shape.experts
            shape = replace(
                self.shape, layer_count=1, window_layer_count=min(self.shape.window_layer_count, 1),
                experts=replace(experts, dense_layer_count=0, layer_step=1) if experts else None,
            )  # fmt: skip
        context = round(sum(self.question.mean_lengths()))
        layout = replace(self.layout, pp=1, adapter_rank=0)  # drafts have no adapters
        step = StepBatch.of_decode(DRAFT_SEQUENCES, kv_count=DRAFT_SEQUENCES * context)
        return step_table(shape, self.target, self.question.costs, layout).seconds(step).device_s

    def kv_tokens(self) -> int:
        """Return the tokens that the cache of a replica holds."""
        settings, source = self.question.settings, step_table(self.shape, self.target, self.question.costs, self.layout)
        if settings.kv_block_count:
            return settings.kv_block_count * settings.block_token_count * self.layout.attention_dp
        budget = settings.step_token_count or source.rank.costs.token_budget
        return kv_token_count(source.rank, self.target, token_budget=budget)

    def run(self, rate_per_s: float, seed: int) -> Outcome:
        """Return what the replicas make of the load of a rate and a seed."""
        from nearpeak.systems.serving.serving_run import Autoscaling, serve

        settings, (engine, grid) = self.question.settings, self.engine()
        scaling = None
        if settings.least_replica_count:
            scaling = Autoscaling(
                least_count=settings.least_replica_count, most_count=self.replica_count,
                request_count=settings.replica_request_count, start_s=settings.start_s,
            )  # fmt: skip
        return serve(self.question.load(rate_per_s, seed), engine, grid, replica_count=self.replica_count,
                     router=settings.router, autoscaling=scaling, seed=seed, is_logged=True)  # fmt: skip

    def pool(self) -> "Pool":
        """Return the replicas as one pool of a disaggregated service."""
        from nearpeak.systems.serving.disaggregation import Pool

        engine, grid = self.engine()
        return Pool(engine=engine, table=grid, replica_count=self.replica_count, router=self.question.settings.router)

    @property
    def device_count(self) -> int:
        """Devices of all replicas."""
        return self.layout.device_count * self.replica_count

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed, a sentence each."""
        settings, costs, notes = self.question.settings, self.question.costs, []
        if costs.is_assumed:
            notes.append(f"host times of {costs.name} are assumed: no measurements of it are at hand ({costs.source})")
        if settings.draft:
            alike = {"ngram": "nothing", "eagle": "one more layer and the head", "mtp": "one more layer and the head"}
            notes.append(f"a drafted token costs {alike.get(settings.draft, f'a step of {settings.draft}')}; the "
                         "accepted share is as stated, the same for all requests")  # fmt: skip
        if settings.adapter_slot_count:
            notes.append(self._adapter_words())
        if settings.least_replica_count:
            notes.append("autoscaling: looked at whenever a request arrives; replicas stay at least 60 s")
        return tuple(notes)

    def _adapter_words(self) -> str:
        """Return what counts of adapters."""
        from nearpeak.systems.serving.adapter_calls import adapter_bytes
        from nearpeak.units import show

        settings = self.question.settings
        if not settings.adapter_rank:
            return "LoRA, rank 0: slots and loading of adapters count, their products and memory do not"
        size = show(float(f"{adapter_bytes(self.shape, self.layout):.3g}"), "B")
        words = (
            f"LoRA, rank {settings.adapter_rank} (lora_rank states it): two thin products beside each projection, "
            f"grouped by adapter, and {size} a device for {settings.adapter_slot_count} slots"
        )
        return f"{words}; routed experts have none" if self.shape.experts else words

    def limiter(self, outcome: Outcome) -> str:
        """Return what holds requests up."""
        from nearpeak.systems.serving.serving_capacity import bound_resource

        return bound_resource(outcome)

    def option(self, outcomes: Sequence[Outcome]) -> ServingOption:
        """Return what runs of one load under several seeds show."""
        devices = float(self.device_count)
        if self.question.settings.least_replica_count:
            length_s = sum(each.end_s - float(each.requests.arrival_s[0]) for each in outcomes)
            devices = sum(float(each.rented_s.sum()) for each in outcomes) / length_s * self.layout.device_count
        return ServingOption(
            layout=self.layout, replica_count=self.replica_count, kv_token_count=self.kv_tokens(),
            limiter=self.limiter(outcomes[0]), mean_device_count=devices, reused_ratio=reused_ratio(outcomes),
            class_latencies_s=class_tails(outcomes, self.question), **served(outcomes, self.question),
        )  # fmt: skip


def served(outcomes: Sequence[Outcome], question: ServiceQuestion) -> dict[str, Any]:
    """Return rates and latencies of runs of one load under several seeds, as fields of an option.

    Requests and output tokens per second are means over the draws, the interval of the rate is their range; latencies
    are those of the requests of all draws. Rates of a closed loop are clients over the mean time of a request (Little's
    law): equal requests end in waves, which no window counts evenly.
    """
    window = question.window()
    reached, latencies = [throughput(each, window(each)) for each in outcomes], summary(*outcomes, window=window)
    rates, tokens = [numbers["requests"] for numbers in reached], fmean(numbers["output_tokens"] for numbers in reached)
    rate = fmean(rates)
    if question.concurrency:
        rates = [question.concurrency / request_metric(each, "latency", window(each)).mean() for each in outcomes]
        rate = question.concurrency / latencies["latency"]["mean"]
        tokens = rate * question.mean_lengths()[1]
    return {
        "rate_per_s": float(rate), "low_per_s": float(min(rates)), "high_per_s": float(max(rates)),
        "output_tokens_per_s": float(tokens), "latencies_s": latencies,
    }  # fmt: skip


def reused_ratio(outcomes: Sequence[Outcome]) -> float:
    """Return the share of the tokens of prompts that came from the prefix cache."""
    whole = sum(int(each.requests.input_count.sum()) for each in outcomes)
    return sum(int(each.reused_count.sum()) for each in outcomes) / whole


def class_tails(outcomes: Sequence[Outcome], question: ServiceQuestion) -> dict[str, dict[str, float]]:
    """Return the 99th percentile of each latency by priority class, where there are two, over all runs."""
    values: dict[str, dict[str, list[Floats]]] = {name: {"ttft": [], "latency": []} for name in CLASS_NAMES}
    for outcome in outcomes:
        classes, arrivals = outcome.requests.classes, outcome.requests.arrival_s
        if classes is None or not classes.any() or classes.all():
            return {}
        window = question.window()(outcome)
        inside = (arrivals >= window.start_s) & (arrivals <= window.stop_s)
        for name, is_member in zip(CLASS_NAMES, (classes == 0, classes > 0), strict=True):
            values[name]["ttft"].append((outcome.first_s - arrivals)[is_member & inside])
            values[name]["latency"].append((outcome.last_s - arrivals)[is_member & inside])
    joined = {name: {kind: np.concatenate(parts) for kind, parts in kinds.items()} for name, kinds in values.items()}
    return {
        name: {kind: quantile(each, 0.99) for kind, each in kinds.items()}
        for name, kinds in joined.items() if len(kinds["ttft"])
    }  # fmt: skip
