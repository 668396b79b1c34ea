"""Single changes of plans of captured steps, and the search for the fastest plan that fits."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nearpeak.api.training.captured_time import CapturedStepTimes, fullest
from nearpeak.core.systems.plan_answer import PlanAnswer, PlanResult
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.plan_search.pareto_front import pareto_front
from nearpeak.systems.training.plan_search.step_floor import fill_ratio

TILES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
"""Rows and columns into which a search cuts images."""
BRANCH_RANKS = (1, 2, 3, 4)
"""Ranks on which a search places branches."""
SHARDINGS = ("none", "zero1", "fsdp")
"""Shardings over replicas that a search tries."""
TIE_RATIO = 0.05
"""Difference of steps below which a search calls plans ties."""
_ALONE: dict[str, Any] = {"tp": 1, "has_branches": False, "cp": 1, "tile_row_count": 1, "tile_column_count": 1}


def captured_neighbours(plan: TrainingPlan, times: CapturedStepTimes, *, has_tf32: bool) -> Iterator[TrainingPlan]:
    """Yield the plans of as many ranks that differ from `plan` in one choice, with the best stages of each.

    Args:
        has_tf32: whether the device multiplies TF32.
    """
    ranks, replicas = plan.rank_count, plan.dp
    changes: list[dict[str, Any]] = [{"pp": plan.pp * factor} for factor in (2, 4)]
    changes += [{"pp": plan.pp // 2}] if plan.pp % 2 == 0 else []
    if plan.pp == 1:
        now = (plan.tile_row_count, plan.tile_column_count)
        changes += [_ALONE | {"cp": rows * columns, "tile_row_count": rows, "tile_column_count": columns}
                    for rows, columns in TILES if (rows, columns) != now]  # fmt: skip
        changes += [_ALONE | {"tp": count, "has_branches": count > 1} for count in BRANCH_RANKS if count != plan.tp]
    changes += [{"sharding": name} for name in SHARDINGS if name != plan.sharding and replicas * plan.cp > 1]
    if plan.pp > 1:
        names = [name for name in ("1f1b", "zb-h1") if name != plan.schedule or plan.chunk_count > 1]
        changes += [{"schedule": name, "chunk_count": 1} for name in names]
        changes += [{"schedule": "interleaved", "chunk_count": 2 * plan.chunk_count}]
        changes += [{"stage_layer_count": ()}] if plan.stage_layer_count else []
    changes += [{"dp_overlap": True}] if not plan.dp_overlap else []
    changes += [{"recompute": "none" if plan.recompute == "full" else "full"}]
    changes += [{"precision": "tf32"}] if has_tf32 and plan.precision == "fp32" else []
    seen = {plan}
    for change in changes:
        parts = {name: change.get(name, getattr(plan, name)) for name in ("tp", "cp", "pp")}
        inner = parts["tp"] * parts["cp"] * parts["pp"]
        if ranks % inner:
            continue
        stages: dict[str, Any] = {} if {"pp", "chunk_count"}.isdisjoint(change) else {"stage_layer_count": ()}
        stages |= {"schedule": "1f1b", "chunk_count": 1} if parts["pp"] == 1 else {}
        try:
            other = times.placed(_framed(replace(plan, **{"dp": ranks // inner} | stages | change)))
        except (SpecError, NotModelledError):
            continue  # degrees that do not divide the batch, tiles or stages that the step does not have
        if other not in seen:
            seen.add(other)
            yield other


def searched_captured(
    base: TrainingPlan, times: CapturedStepTimes, *, fast_count: int, device_price_per_s: float
) -> PlanAnswer:
    """Return the fastest plan that fits on the ranks and at the batch of `base`, all others of the space timed.

    Blocks are recomputed where a plan does not fit otherwise: that is never faster. A plan is left out where the proved
    bounds of its kernels, shared out over its ranks, in the shortest pipeline are slower than the best step so far.

    Args:
        base: a plan of replicas alone; micro-batch, batch, precision and framework are those of all plans.
        fast_count: devices of the innermost tier, within which tiles and branches stay.

    Raises:
        SpecError: no plan is legal, or none fits; the message counts them by reason.
    """
    refused, fitting, results = Counter[str](), 0, list[PlanResult]()
    bound_s, best_s, legal = times.bound_s(), float("inf"), 0
    for plan in _space(base, times.block_count, fast_count, refused):
        try:
            placed, held = _least_recomputed(plan, times)
        except (SpecError, NotModelledError):
            refused["step"] += 1
            continue
        legal += 1
        if not held.fits:
            refused["memory"] += 1
            continue
        fitting += 1
        share = plan.tp * plan.cp * plan.pp
        if plan.micro_batch_count * bound_s / share * float(fill_ratio(plan, 1 / 3)) >= best_s:
            continue
        step_s = times.time(placed).step_s
        best_s = min(best_s, step_s)
        results.append(PlanResult(
            plan=placed, step_s=step_s, tokens_per_s=plan.global_batch / step_s,
            token_price=plan.rank_count * device_price_per_s * step_s / plan.global_batch,
            allocated_bytes=held.allocated_bytes, free_bytes=held.free_bytes or 0,
        ))  # fmt: skip
    if not results:
        counts = ", ".join(f"{reason} {count}" for reason, count in refused.items())
        raise SpecError(
            f"{times.step.name}: no plan on {base.rank_count} devices fits; refused: {counts}: more devices, or a "
            "smaller --batch"
        )
    results.sort(key=lambda result: (result.step_s, -result.free_bytes))
    edge_s = results[0].step_s * (1 + TIE_RATIO)
    return PlanAnswer(
        best=results[0], ties=tuple(candidate for candidate in results if candidate.step_s <= edge_s), open_count=0,
        front=pareto_front(results), refused=dict(refused), legal_count=legal, fitting_count=fitting,
        executed_count=len(results),
    )  # fmt: skip


def _least_recomputed(plan: TrainingPlan, times: CapturedStepTimes) -> tuple[TrainingPlan, RankMemory]:
    """Return the plan with its stages and the memory of its fullest rank, recomputing only where it has to."""
    placed = times.placed(replace(plan, recompute="none"))
    held = fullest(times.memory(placed))
    if held.fits:
        return placed, held
    again = times.placed(replace(plan, recompute="full"))
    return again, fullest(times.memory(again))


def _space(base: TrainingPlan, block_count: int, fast_count: int, refused: "Counter[str]") -> Iterator[TrainingPlan]:
    """Yield the plans of a search: replicas first, then stages, tiles and branches."""
    ranks = base.rank_count
    stages = [count for count in range(1, min(ranks, block_count) + 1) if ranks % count == 0]
    parts: list[dict[str, Any]] = [
        {"pp": count, "cp": rows * columns, "tile_row_count": rows, "tile_column_count": columns}
        for rows, columns in TILES for count in stages
    ]  # fmt: skip
    parts += [{"pp": count, "schedule": "interleaved", "chunk_count": 2}
              for count in stages if 1 < count <= block_count // 2]  # fmt: skip
    parts += [{"tp": count, "has_branches": True} for count in BRANCH_RANKS if count > 1]
    for part in parts:
        inner = part.get("pp", 1) * part.get("cp", 1) * part.get("tp", 1)
        if ranks % inner or part.get("cp", 1) * part.get("tp", 1) > fast_count:
            continue
        replicas = ranks // inner
        for sharding in SHARDINGS if replicas * part.get("cp", 1) > 1 else SHARDINGS[:1]:
            try:
                yield _framed(replace(base, **part, dp=replicas, sharding=sharding))
            except SpecError:
                refused["batch"] += 1


def _framed(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan with the framework that replicas or shards of PyTorch have."""
    return replace(plan, framework="ddp" if plan.sharding == "none" else "fsdp2")
