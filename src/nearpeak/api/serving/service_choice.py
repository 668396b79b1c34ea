"""Choice of a service: the same question on several kinds and numbers of devices and in several formats."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from nearpeak.api.serving.service_edits import service_edits
from nearpeak.api.serving.service_plan import Fleet, plan_serving, shape_of_model
from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.core.systems.service import PlannedServing, ServiceChoice
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NotModelledError, SpecError


def choose_service(
    model: str | TransformerShape, fleets: Sequence[Fleet], question: ServiceQuestion, *,
    weights: Sequence[str], caches: Sequence[str],
) -> ServiceChoice:  # fmt: skip
    """Return the answers for each fleet, format of weights and format of the cache.

    Raises:
        SpecError: none can serve; the message says why each cannot.
    """
    shape, plans, refused = shape_of_model(model), [], {}
    for fleet, form, cache in product(fleets, weights, caches):

        def formed(layout: ServingLayout, form: str = form, cache: str = cache) -> ServingLayout:
            return replace(layout, weight_format=form, kv_format=cache)

        here = replace(fleet, base=formed(fleet.base), layouts=tuple(map(formed, fleet.layouts)))
        try:
            plans.append((plan_serving(shape, here, question), here.target))
        except (SpecError, NotModelledError) as error:
            refused[f"{fleet.device_count} × {fleet.target.name}, weights {form}, cache {cache}"] = str(error)
    if not plans:
        reasons = tuple(dict.fromkeys(refused.values()))
        raise SpecError(reasons[0] if len(reasons) == 1 else f"plan serve: no choice can serve: {'; '.join(reasons)}")
    plans.sort(key=lambda pair: _order(pair[0]))
    best, target = plans[0]
    plans[0] = replace(best, edits=service_edits(best, shape, target, question)), target
    points = [_point(plan) for plan, _ in plans]
    front = tuple(
        bool(plan.best.rate_per_s) and not any(_beats(other, point) for other in points)
        for (plan, _), point in zip(plans, points, strict=True)
    )
    return ServiceChoice(plans=tuple(plan for plan, _ in plans), front=front, refused=refused)


def _cost(plan: PlannedServing) -> float:
    """Return what a plan is compared by: the price of tokens, or without prices the devices per token and second."""
    if plan.best.usd_per_million_tokens is not None:
        return plan.best.usd_per_million_tokens
    rate = plan.best.output_tokens_per_s if plan.best.rate_per_s else 0.0
    return plan.best.mean_device_count / rate if rate else float("inf")


def _order(plan: PlannedServing) -> tuple[bool, float, float, float]:
    rate, cost, first, token = _point(plan)
    return not plan.meets_limits(), cost, rate, first + token


def _point(plan: PlannedServing) -> tuple[float, float, float, float]:
    """Return what should be low, to three digits: requests not served, cost, and the latencies of the user."""
    tails = plan.best.latencies_s
    first, token = (tails[name]["p99"] if name in tails else 0.0 for name in ("ttft", "tpot"))
    figures = (-plan.best.rate_per_s, _cost(plan), first, token)
    rate, cost, first, token = (float(f"{figure:.3g}") for figure in figures)
    return rate, cost, first, token


def _beats(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))
