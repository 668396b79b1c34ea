"""The nearest public measurement of a training plan: rows that are plans, distances, and what is said of it."""

from dataclasses import replace

import pytest

from nearpeak.api.training import step_neighbour
from nearpeak.api.training.step_neighbour import nearest_step, public_steps
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.targets import target_of
from nearpeak.targets.clusters import cluster_of


def asked(step, **changes):
    plan = replace(step.plan(), **changes)
    return nearest_step(shape_of(step.model), plan, target_of(step.target), step.stack)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(step_neighbour, "_predicted_s", lambda step: 1.1 * step.step_s)


def test_every_shipped_measurement_is_a_plan_of_a_known_model_on_a_known_cluster():
    assert len(public_steps()) > 100
    for step in public_steps():
        assert step.plan().rank_count == step.device_count
        assert shape_of(step.model).layer_count
        cluster_of(f"{step.device_count}x{step.target}", step.fabric)
        assert step.step_s > 0


def test_a_measurement_is_its_own_nearest_neighbour():
    for step in public_steps()[::9]:
        found = asked(step)
        assert (found.distance_count, found.distance) == (0, "the very same question")
        assert found.error_ratio == pytest.approx(0.1)


def test_what_differs_is_named_and_counted():
    step = next(step for step in public_steps() if (step.model, step.target) == ("llama-3-70b", "h100_sxm"))
    found = asked(step, precision="fp8-delayed", sequence=2 * step.sequence)
    assert found.distance_count == 1.25
    assert found.distance == "distance 1.2: differs in precision, sequence"


def test_rows_that_are_refused_give_way_to_the_next(monkeypatch):
    monkeypatch.setattr(step_neighbour, "_predicted_s", lambda step: None)
    assert asked(public_steps()[0]) is None
