"""Nearest public measurement of a training plan, how far it is, and what is predicted for it."""

import heapq
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nearpeak.api.training.training_time import training_time
from nearpeak.base.input_files import toml_of_file
from nearpeak.core.systems.plan_answer import MeasuredNeighbour
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.systems.training import stack_files

POINTS = Path(stack_files.__file__).parent / "measured_steps.toml"
"""Public measurements that are shipped."""
MOST_TRIED = 3
"""Measurements that are predicted at most until one is not refused."""
_STEPS = {
    "device": 2.0, "architecture": 1.0, "stack": 1.0, "precision": 1.0, "experts": 1.0, "sharding": 0.5, "model": 0.5,
    "recompute": 0.5, "degree": 0.25, "devices": 0.25, "sequence": 0.25,
}  # fmt: skip
"""Distance of what differs: of names once, of sizes for each factor of two. Device, stack and format decide most."""


class PublicStep(NamedTuple):
    """A public measurement."""

    target: str
    model: str
    device_count: int
    fabric: str
    words: str
    sequence: int
    global_batch: int
    precision: str
    stack: str
    step_s: float
    source: str

    def plan(self) -> TrainingPlan:
        """Return its plan."""
        return training_plan_of(
            self.words, self.device_count, sequence=self.sequence, global_batch=self.global_batch,
            precision=self.precision,
        )  # fmt: skip


@cache
def public_steps() -> tuple[PublicStep, ...]:
    """Return all public measurements that are shipped."""
    table = toml_of_file(POINTS)
    return tuple(
        PublicStep._make([*row, source["title"]]) for source in table["source"] for row in source["points"]
    )  # fmt: skip


def nearest_step(shape: TransformerShape, plan: TrainingPlan, target: Target, stack: str) -> MeasuredNeighbour | None:
    """Return the nearest measurement, what differs, and what is predicted for it; none that can be predicted.

    Args:
        stack: name of the software stack of the question.
    """

    def distance(step: PublicStep) -> float:
        return sum(part for part, _ in _differences(shape, plan, target, stack, step))

    nearest = heapq.nsmallest(MOST_TRIED, public_steps(), key=distance)
    match = next(((step, time_s) for step in nearest if (time_s := _predicted_s(step))), None)
    if match is None:
        return None
    near, predicted_s = match
    total = distance(near)
    words = [text for part, text in _differences(shape, plan, target, stack, near) if part]
    return MeasuredNeighbour(
        name=f"{near.device_count} × {near.target}, {near.stack}, {near.model}, {near.words}, {near.precision}, "
        f"{near.global_batch:,} sequences of {near.sequence:,} tokens",
        source=near.source, distance_count=round(total, 2), measured_s=near.step_s, predicted_s=predicted_s,
        distance=f"distance {total:.1f}: differs in {', '.join(words)}" if words else "the very same question",
    )  # fmt: skip


@cache
def _predicted_s(step: PublicStep) -> float | None:
    """Return the time that is predicted for a measurement; none where it is refused."""
    from nearpeak.targets.clusters import cluster_of

    try:
        cluster = cluster_of(f"{step.device_count}x{step.target}", step.fabric)
        return training_time(step.model, step.plan(), cluster, step.stack).step_s
    except NearpeakError:
        return None


def _differences(
    shape: TransformerShape, plan: TrainingPlan, target: Target, stack: str, step: PublicStep
) -> Iterator[tuple[float, str]]:
    """Yield the distance of each thing that differs, with its name."""
    from nearpeak.systems.transformer.parameters import parameter_count
    from nearpeak.targets import target_of

    other, known = _plan(step), _shape(step.model)
    if target.name != step.target:
        is_near = target.architecture == target_of(step.target).architecture
        yield _STEPS["architecture" if is_near else "device"], "device"
    names = (
        ("stack", "software stack", stack, step.stack), ("precision", "precision", plan.precision, step.precision),
        ("experts", "experts", bool(shape.experts), bool(known.experts)),
        ("sharding", "sharding", plan.sharding, other.sharding),
        ("recompute", "recomputation", plan.recompute, other.recompute),
    )  # fmt: skip
    for name, words, here, there in names:
        if here != there:
            yield _STEPS[name], words
    sizes = (
        ("model", "model", parameter_count(shape), parameter_count(known)),
        ("devices", "devices", plan.rank_count, other.rank_count),
        ("sequence", "sequence", plan.sequence, other.sequence), ("degree", "tp", plan.tp, other.tp),
        ("degree", "pp", plan.pp, other.pp), ("degree", "cp", plan.cp, other.cp), ("degree", "ep", plan.ep, other.ep),
        ("degree", "micro-batch", plan.micro_batch, other.micro_batch),
    )  # fmt: skip
    for name, words, count, there_count in sizes:
        part = _STEPS[name] * abs(math.log2(count / there_count))
        yield (part if part > 0.02 else 0.0), words


@cache
def _plan(step: PublicStep) -> TrainingPlan:
    return step.plan()


@cache
def _shape(name: str) -> TransformerShape:
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    return shape_of(name)
