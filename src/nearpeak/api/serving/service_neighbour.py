"""Nearest public measurement of a question about a service, how far it is, and what is predicted for it."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nearpeak.base.input_files import toml_of_file
from nearpeak.core.systems.plan_answer import MeasuredNeighbour
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.systems.serving import engine_costs
from nearpeak.systems.serving.cache_memory import weight_bytes

POINTS = Path(engine_costs.__file__).parent / "measured_points.toml"
_STEPS = {
    "device": 2.0, "architecture": 1.0, "engine": 1.0, "weights": 1.0, "model": 0.5, "tp": 0.5, "input": 0.5,
    "clients": 0.25,
}  # fmt: skip
"""Distance of what differs: of names once, of sizes for each factor of two. Device and engine decide most."""


class Point(NamedTuple):
    """A public measurement."""

    target: str
    engine: str
    model: str
    weights: str
    tp: int
    ep: int
    input_tokens: int
    output_tokens: int
    concurrency: int
    tpot_ms: float
    mean_ratio: float
    spread_ratio: float
    source: str


@cache
def measured_points() -> tuple[Point, ...]:
    """Return all public measurements that are shipped."""
    table = toml_of_file(POINTS)
    return tuple(
        Point._make([*row, source["mean"], source["spread"], source["title"]])
        for source in table["source"] for row in source["points"]
    )  # fmt: skip


class Asked(NamedTuple):
    """What the distance to a measurement is counted from."""

    target: Target
    engine: str
    shape: TransformerShape
    layout: ServingLayout
    input_tokens: float
    clients: float


def nearest_point(setting: Asked) -> MeasuredNeighbour | None:
    """Return the nearest measurement, what differs, and what is predicted for it; none that can be predicted."""
    point = min(measured_points(), key=lambda each: sum(step for step, _ in _differences(setting, each)))
    predicted_s = _predicted_s(point)
    if predicted_s is None:
        return None
    words = [text for step, text in _differences(setting, point) if step]
    total = sum(step for step, _ in _differences(setting, point))
    return MeasuredNeighbour(
        name=f"{point.tp} × {point.target}, {point.engine}, {point.model}, {point.weights}, "
        f"{point.input_tokens:,} tokens in, {point.output_tokens:,} out, "
        f"{point.concurrency} client{'s' * (point.concurrency > 1)}",
        source=point.source, distance_count=round(total, 2), measured_s=point.tpot_ms * 1e-3,
        distance=f"distance {total:.1f}: differs in {', '.join(words)}" if words else "the very same question",
        predicted_s=predicted_s,
    )  # fmt: skip


@cache
def _predicted_s(point: Point) -> float | None:
    """Return the time per output token that is predicted for a measurement; none where it is refused."""
    from nearpeak.api.serving.serving_plan import serving_time
    from nearpeak.errors import NearpeakError

    inputs, outputs = (round(tokens * point.mean_ratio) for tokens in (point.input_tokens, point.output_tokens))
    try:
        return serving_time(
            point.model, point.target, engine=point.engine, input_tokens=inputs, output_tokens=outputs,
            layout=ServingLayout(tp=point.tp, ep=point.ep, weight_format=point.weights), requests_per_client=4,
            concurrency=point.concurrency, length_spread=point.spread_ratio, has_trust=False,
        ).tpot_s.value  # fmt: skip
    except NearpeakError:
        return None


def _differences(setting: Asked, point: Point) -> Iterator[tuple[float, str]]:
    """Yield the distance of each thing that differs, with its name."""
    from nearpeak.targets import target_of

    if setting.target.name != point.target:
        is_near = setting.target.architecture == target_of(point.target).architecture
        yield _STEPS["architecture" if is_near else "device"], "device"
    if setting.engine != point.engine:
        yield _STEPS["engine"], "engine"
    if setting.layout.weight_format != point.weights:
        yield _STEPS["weights"], "format of weights"
    sizes = (
        ("model", "model", _size(setting.shape), _size(_shape(point.model))),
        ("tp", "tensor-parallel degree", setting.layout.tp, point.tp),
        ("input", "prompt", setting.input_tokens, point.input_tokens),
        ("clients", "requests at once", max(setting.clients, 1), point.concurrency),
    )
    for name, words, size, other in sizes:
        step = _STEPS[name] * abs(math.log2(size / other))
        yield (step if step > 0.02 else 0.0), words


def _size(shape: TransformerShape) -> float:
    return float(weight_bytes(shape))


@cache
def _shape(name: str) -> TransformerShape:
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    return shape_of(name)
