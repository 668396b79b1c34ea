"""How fast the search over training plans is, what share of them it times, and whether it finds the fastest."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._figures import Figure
from nearpeak.core.systems.fabric import Fabric, Tier
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.plan_search.branch_and_bound import SearchLimits, search_plans
from nearpeak.systems.training.plan_search.plan_memory import group_memory
from nearpeak.systems.training.plan_search.plan_space import PlanSpace, legal_plans
from nearpeak.systems.training.plan_search.step_floor import DeviceRates, step_floor, traffic_bytes

FIGURES = ("plan_search_cpu_s", "plan_search_executed_ratio", "plan_search_gap_ratio")
SEED = 20261129

LLAMA_70B = TransformerShape(
    name="llama-3-70b", layer_count=80, hidden=8192, head_count=64, kv_head_count=8, head_width=128, ffn=28672,
    is_gated=True, vocabulary=128256,
)  # fmt: skip
SPACE = PlanSpace(
    device_count=1536, fast_count=8, global_batch=9216, sequence=8192, cp=(1, 2, 3, 4, 6, 8, 16),
    chunk_counts=(1, 2, 4, 5, 8, 10, 20), micro_batches=(1, 2, 3, 4, 6, 8, 9, 12),
    schedules=("1f1b", "interleaved", "zb-h1"), shardings=("none", "zero1", "zero2"), tp_overlaps=(False, True),
)  # fmt: skip
LIMITS = SearchLimits(device_bytes=80 * 10**9, context_bytes=10**9, interval_ratio=0.05, device_price_per_s=7e-4)
RATES = DeviceRates(flop_per_s=989.4e12)
FABRIC = Fabric(
    name="made",
    title="eight devices at 450 GB/s, nodes at 50 GB/s",
    tiers=(
        Tier(name="fast", device_count=8, bandwidth_bytes_per_s=450e9, latency_s=2e-6, source="made up"),
        Tier(name="slow", device_count=0, bandwidth_bytes_per_s=50e9, latency_s=5e-6, source="made up"),
    ),
)


def measure() -> Iterator[Figure]:
    """Search more than 100,000 plans, then time all that fit and compare.

    Times are those of a simple model: products at an efficiency that falls with narrow shards, exposed communication,
    the published formula of each schedule's bubble, and the optimizer's traffic. The tighter bound hides the reduction
    of gradients, whose overlap the execution alone tells.
    """
    started = time.process_time()
    answer = search_plans(
        LLAMA_70B, SPACE, LIMITS, step_time=_model(reduction=0.5), tighter=[_model(reduction=0.0)],
        floor=lambda group: step_floor(LLAMA_70B, group, RATES, FABRIC),
    )  # fmt: skip
    taken_s = (time.process_time() - started) * 100_000 / answer.legal_count
    print(f"  {answer.legal_count} legal plans, {answer.fitting_count} fit, {answer.executed_count} timed", flush=True)
    exhaustive_s = min(map(_model(reduction=0.5), _fitting_plans()))
    yield Figure(
        name="plan_search_cpu_s", value=taken_s, unit="s per 100,000 plans", bar="<= 5 s", passed=taken_s <= 5,
    )  # fmt: skip
    executed = 100 * answer.executed_ratio
    yield Figure(name="plan_search_executed_ratio", value=executed, unit="%", bar="<= 2%", passed=executed <= 2)
    gap = 100 * (answer.best.step_s / exhaustive_s - 1)
    yield Figure(name="plan_search_gap_ratio", value=gap, unit="%", bar="0 %", passed=gap == 0)


def _fitting_plans() -> Iterator[TrainingPlan]:
    """Yield all plans that fit."""
    for group in legal_plans(LLAMA_70B, SPACE).groups:
        room = LIMITS.device_bytes - LIMITS.context_bytes - group_memory(LLAMA_70B, group)
        for row in np.flatnonzero(room >= 0):
            yield group.plan(int(row))


def _model(*, reduction: float) -> Callable[[TrainingPlan], float]:
    """Return seconds of a step of a plan.

    Args:
        reduction: share of the gradients' reduction that is exposed.
    """
    no_links = replace(FABRIC, tiers=tuple(replace(tier, bandwidth_bytes_per_s=1e18) for tier in FABRIC.tiers))

    def step_s(plan: TrainingPlan) -> float:
        busy_s: Any = step_floor(LLAMA_70B, replace(plan, schedule="dualpipe"), RATES, no_links)
        rows = plan.micro_batch * plan.sequence / plan.cp
        efficiency = 0.75 * rows / (rows + 512) * (1 - 0.03 * plan.tp**0.5)
        bubble = (plan.pp - 1) / plan.micro_batch_count / plan.chunk_count
        bubble *= 1 / 3 if plan.schedule == "zb-h1" else 1
        total = busy_s / efficiency * (1 + bubble)
        for dim, (size, span) in traffic_bytes(LLAMA_70B, plan).items():
            tier = FABRIC.tiers[0 if span <= FABRIC.tiers[0].device_count else 1]
            exposed = reduction if dim == "dp" else 0.3 if plan.tp_overlap else 1.0
            total += size / tier.bandwidth_bytes_per_s / 0.8 * exposed
        shard = plan.tp * plan.pp * (1 if plan.sharding == "none" else plan.dp * plan.cp)
        total += 28 * 70.6e9 / shard / 2.7e12  # reads and writes of 14 bytes per parameter
        return float(total)

    return step_s
