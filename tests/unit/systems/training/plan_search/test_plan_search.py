"""Search of training plans against exhaustive search, with times that are constants."""

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.sampling import sampled

from nearpeak.core.systems.fabric import Fabric, Tier
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import Experts, TransformerShape
from nearpeak.errors import SpecError
from nearpeak.systems.training.memory.memory_peak import fullest_rank
from nearpeak.systems.training.plan_search.branch_and_bound import SearchLimits, search_plans
from nearpeak.systems.training.plan_search.neighbour_plans import neighbours_of, plan_edits
from nearpeak.systems.training.plan_search.plan_memory import group_memory
from nearpeak.systems.training.plan_search.plan_space import PlanGroup, PlanSpace, legal_plans
from nearpeak.systems.training.plan_search.program_floor import QueuedCalls, program_floor
from nearpeak.systems.training.plan_search.step_floor import DeviceRates, fill_ratio, step_floor

FABRIC = Fabric(
    name="two",
    title="two tiers",
    tiers=(
        Tier(name="fast", device_count=8, bandwidth_bytes_per_s=450e9, latency_s=2e-6, source="test"),
        Tier(name="slow", device_count=0, bandwidth_bytes_per_s=50e9, latency_s=5e-6, source="test"),
    ),
)
RATES = DeviceRates(flop_per_s=1e15)
LLAMA = TransformerShape(
    name="llama", layer_count=32, hidden=4096, head_count=32, kv_head_count=8, head_width=128, ffn=14336,
    is_gated=True, vocabulary=128256,
)  # fmt: skip


def _instance(seed: int) -> tuple[TransformerShape, PlanSpace, SearchLimits]:
    draw = random.Random(seed)
    shape = replace(
        LLAMA, layer_count=draw.choice([8, 12, 30, 32]), hidden=draw.choice([1024, 4096, 8192]),
        vocabulary=draw.choice([32000, 128256]),
    )  # fmt: skip
    space = PlanSpace(
        device_count=draw.choice([8, 16, 32]), fast_count=8, global_batch=draw.choice([64, 96]), sequence=4096,
        recomputes=draw.sample(["none", "selective", "full"], draw.choice([1, 3])), chunk_counts=(1, 2),
        micro_batches=draw.choice([(1,), (1, 2)]), cp=draw.choice([(1,), (1, 2)]),
    )  # fmt: skip
    limits = SearchLimits(
        device_bytes=draw.choice([24, 40, 80, 160]) * 10**9, interval_ratio=0.05, device_price_per_s=1
    )
    return shape, space, limits


def _floor(shape: TransformerShape, group: PlanGroup) -> np.ndarray:
    return step_floor(shape, group, RATES, FABRIC)


def _time_table(shape: TransformerShape, space: PlanSpace, seed: int) -> tuple[dict[TrainingPlan, float], np.ndarray]:
    """Return seconds of every legal plan, at random above its floor, and its memory."""
    draw = np.random.default_rng(seed)
    times, memory = {}, []
    for group in legal_plans(shape, space).groups:
        seconds = _floor(shape, group) * (1 + draw.gamma(2, 0.2, len(group)))
        times |= {group.plan(row): float(seconds[row]) for row in range(len(group))}
        memory.append(group_memory(shape, group))
    return times, np.concatenate(memory)


@pytest.mark.parametrize("block", sampled(range(10), 3))
def test_the_fastest_plan_of_an_exhaustive_search_is_found(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        shape, space, limits = _instance(seed)
        times, memory = _time_table(shape, space, seed)
        fitting = [time_s for time_s, held in zip(times.values(), memory, strict=True) if held <= limits.device_bytes]
        if not fitting:
            with pytest.raises(SpecError, match=r"refused: .*memory"):
                search_plans(
                    shape, space, limits, step_time=times.__getitem__, floor=lambda group, own=shape: _floor(own, group)
                )
            continue
        answer = search_plans(
            shape, space, limits, step_time=times.__getitem__, floor=lambda group, own=shape: _floor(own, group),
            tighter=[lambda plan, table=times: 0.97 * table[plan]],
        )  # fmt: skip
        assert answer.best.step_s == min(fitting)
        assert answer.fitting_count == len(fitting)
        assert answer.executed_count < 12


@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_the_front_of_an_exhaustive_search_is_found(seed: int) -> None:
    shape, space, limits = _instance(seed)
    times, memory = _time_table(shape, space, seed)
    free = limits.device_bytes - memory
    steps = free // limits.free_step_bytes
    points = [(time_s, left) for time_s, left, room in zip(times.values(), steps, free, strict=True) if room >= 0]
    if not points:
        return
    front = {
        (time_s, left) for time_s, left in points
        if not any(other <= time_s and more >= left and (other, more) != (time_s, left) for other, more in points)
    }  # fmt: skip
    answer = search_plans(
        shape, space, limits, step_time=times.__getitem__, floor=lambda group: _floor(shape, group), with_front=True
    )
    found = {(result.step_s, result.free_bytes // limits.free_step_bytes) for result in answer.front}
    assert front <= found


def test_ties_lie_within_the_interval_and_a_budget_only_helps() -> None:
    shape, space, limits = _instance(5)
    times, _ = _time_table(shape, space, 5)
    answer = search_plans(
        shape, space, replace(limits, device_bytes=10**12), step_time=times.__getitem__,
        floor=lambda group: _floor(shape, group),
    )  # fmt: skip
    assert all(result.step_s <= 1.05 * answer.best.step_s for result in answer.ties)
    assert answer.best in answer.ties
    less = search_plans(shape, space, limits, step_time=times.__getitem__, floor=lambda group: _floor(shape, group))
    assert answer.best.step_s <= less.best.step_s


def test_plans_that_the_step_refuses_are_counted_and_others_found() -> None:
    shape, space, limits = _instance(5)
    times, _ = _time_table(shape, space, 5)

    def step_time(plan: TrainingPlan) -> float:
        if plan.tp > 1:
            raise SpecError("tp above 1 is not modelled")
        return times[plan]

    room = replace(limits, device_bytes=10**12)
    answer = search_plans(shape, space, room, step_time=step_time, floor=lambda group: _floor(shape, group))
    assert answer.best.plan.tp == 1
    assert answer.refused["step"] > 0
    close = search_plans(
        shape, space, room, step_time=times.__getitem__, floor=lambda group: _floor(shape, group),
        fits=lambda plan: plan.tp == 1,
    )  # fmt: skip
    assert close.best.step_s == answer.best.step_s
    with pytest.raises(SpecError, match="tp above 1"):
        search_plans(
            shape, replace(space, tp=(2,)), room, step_time=step_time, floor=lambda group: _floor(shape, group)
        )


def test_memory_on_columns_is_that_of_single_plans() -> None:
    shape, space, _ = _instance(3)
    draw = random.Random(1)
    groups = legal_plans(shape, space).groups
    for _ in range(30):
        group = draw.choice(groups)
        row = draw.randrange(len(group))
        one = fullest_rank(shape, group.plan(row), allocator="none").allocated_bytes
        assert group_memory(shape, group.chosen(np.array([row])))[0] == pytest.approx(one, rel=1e-6)


def test_the_bound_from_short_models_is_that_of_the_whole_model() -> None:
    shape = replace(LLAMA, experts=Experts(count=8, per_token=2, width=64, dense_layer_count=3))
    asked = []

    def program_calls(model: TransformerShape, plan: TrainingPlan) -> QueuedCalls:
        asked.append(plan)
        dense, experts = model.dense_layer_count, model.expert_layer_count
        forward = {name: count for name, count in (("end", 1), ("dense", dense), ("experts", experts)) if count}
        return QueuedCalls(forward, {name: 3 * count for name, count in forward.items()}, {"end": 3}, {})

    def calls_time(plan: TrainingPlan, calls: dict, mix: dict) -> float:
        assert not mix or mix == {"end": 3, "dense": 9, "experts": 87}
        seconds = {"end": 5, "dense": 2, "experts": 3}
        return sum(count * seconds[name] for name, count in calls.items()) / 3 / plan.tp

    host = Stack(name="none", title="None", launch_s=0.0, source="test")
    floor = program_floor(shape, program_calls, calls_time, host)
    plan = TrainingPlan(tp=2, dp=2, micro_batch=1, global_batch=8, sequence=64)
    assert floor(plan) == pytest.approx(4 * (5 + 2 * 3 + 3 * 29) / 2)
    staged = replace(plan, dp=1, pp=2)
    assert floor(staged) > 8 * (5 + 2 * 3 + 3 * 29) / 4
    assert floor(replace(staged, schedule="interleaved", chunk_count=2)) < floor(staged)
    assert len({(plan.dp, plan.tp) for plan in asked}) == 2  # stages and schedules share their programs


def test_no_split_of_layers_beats_the_fill_of_a_pipeline() -> None:
    plan = TrainingPlan(pp=4, micro_batch=1, global_batch=8, sequence=8)
    bound = float(fill_ratio(plan, 1 / 3))
    assert 1 < bound < 1 + 3 / 8  # equal stages take (m + p - 1) / m
    draw = random.Random(0)
    for _ in range(200):
        work = [draw.random() for _ in range(4)]
        step = max(8 * own + sum(work[:place]) for place, own in enumerate(work))
        assert step >= 8 * bound * sum(work) / 4 * (1 - 1e-12)


def test_edits_say_what_they_gain_or_by_how_much_they_do_not_fit() -> None:
    plan = TrainingPlan(tp=2, pp=2, dp=4, micro_batch=1, global_batch=64, sequence=4096, sequence_parallel=True)
    edits = plan_edits(
        plan, neighbours_of(plan, 8), step_time=lambda one: float(step_floor(LLAMA, one, RATES, FABRIC)),
        interval_ratio=0.02, memory=lambda one: fullest_rank(LLAMA, one, device_bytes=64 * 10**9),
    )  # fmt: skip
    assert len(edits) == 8
    gains = [edit.gain_ratio for edit in edits if edit.gain_ratio is not None]
    assert gains == sorted(gains, reverse=True)
    assert all(edit.plan.rank_count == plan.rank_count for edit in edits)
    assert all((edit.step_s is None) == ((edit.memory.free_bytes or 0) < 0) for edit in edits)
