"""Second-order steps: golden FLOP, placement against brute force, slack and sub-grids."""

import random
from dataclasses import replace
from itertools import product

import pytest

from nearpeak.core.systems.second_order import SecondOrderPlan
from nearpeak.errors import SpecError
from nearpeak.ops import work_of
from nearpeak.systems.training.second_order.matrix_methods import METHODS, MatrixLayer, kfac_work
from nearpeak.systems.training.second_order.rank_placement import place_longest_first
from nearpeak.systems.training.second_order.second_order_step import exposed_s, second_order_step

LAYER = MatrixLayer(name="mlp", rows=4096, columns=4096, token_count=8192)


def test_operators_count_symmetric_products_once():
    work = kfac_work(LAYER)
    flop = [sum(work_of(case).flop.values()) for case in (*work.factors, *(job.case for job in work.inverses))]
    assert flop[0] == pytest.approx(274.9e9 / 2, rel=1e-3)
    assert flop[2] == pytest.approx(68.7e9, rel=1e-2)
    assert sum(work_of(work.updates[0]).flop.values()) == pytest.approx(274.9e9, rel=1e-3)
    assert work.reduced_bytes == pytest.approx((4096**2 + 4096**2) / 2 * 4, rel=1e-3)


def test_longest_first_is_within_its_bound_of_brute_force():
    draw = random.Random(0)
    for _ in range(25):
        jobs = [draw.choice([1.0, 2.0, 3.5, draw.random()]) for _ in range(draw.randint(1, 7))]
        ranks = draw.randint(1, 3)
        best = min(
            max(sum(job for job, place in zip(jobs, places, strict=True) if place == rank) for rank in range(ranks))
            for places in product(range(ranks), repeat=len(jobs))
        )
        placed = place_longest_first(jobs, ranks)
        assert best <= placed.longest_s + 1e-12
        assert placed.longest_s <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-12
        assert sum(placed.load_s) == pytest.approx(sum(jobs))


def step(plan, slack_s=0.0):
    return second_order_step(
        [replace(LAYER, layer_count=8)], plan,
        case_s=lambda case: {"kfac_inverse": 2.0, "kfac_factor": 0.5}.get(case.op, 0.25),
        transfer_s=lambda transfer: 0.0 if transfer.kind == "broadcast" else 0.125, step_s=10.0, slack_s=slack_s,
    )  # fmt: skip


def test_parts_of_a_step_add_up_for_one_rank_and_for_many():
    one = step(SecondOrderPlan())
    assert (one.factor_s, one.reduce_s, one.inverse_s, one.update_s) == (8.0, 0.0, 32.0, 2.0)
    assert one.added_s == 8 + 32 + 2
    many = step(SecondOrderPlan(rank_count=5, factor_interval_count=4, inverse_interval_count=10))
    assert many.inverse_s == 8.0, "16 inverses on 5 ranks: the busiest has 4, the mean 3.2"
    assert many.reduce_s == 0.125 * 8 / 4
    assert many.exposed_s == pytest.approx(0.8)


def test_slack_of_the_steps_in_between_hides_inverses():
    plan = SecondOrderPlan(rank_count=4, inverse_interval_count=10)
    exposed = [step(plan, slack).exposed_s for slack in (0.0, 0.4, 0.8, 2.0)]
    assert exposed == pytest.approx([0.8, 0.4, 0.0, 0.0])
    assert exposed_s(8.0, 0.4, 10) == pytest.approx(4.0)


def test_a_sub_grid_hides_inverses_and_costs_its_share_of_the_step():
    plan = SecondOrderPlan(rank_count=64, inverse_interval_count=2, sub_grid_count=2)
    result = step(plan)
    assert result.inverse_s == 16.0
    assert result.exposed_s == 0.0
    assert result.sub_grid_s == pytest.approx(10 * 2 / 62)
    assert step(replace(plan, sub_grid_count=1)).exposed_s == pytest.approx((32 - 2 * 10 * 64 / 63) / 2)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_cases_of_the_catalogue(method):
    work, result = METHODS[method](LAYER), step(SecondOrderPlan(method=method, rank_count=2))
    cases = (*work.factors, *(job.case for job in work.inverses), *work.updates)
    assert all(sum(work_of(case).flop.values()) > 1e9 or case.op == "decomposition" for case in cases)
    assert result.added_s > 0
    assert len(result.job_ranks) == 8 * len(METHODS[method](LAYER).inverses)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SecondOrderPlan(rank_count=4, sub_grid_count=4), "leaves none of 4"),
        (lambda: SecondOrderPlan(factor_interval_count=0), "at least 1"),
        (lambda: MatrixLayer(name="x", rows=0, columns=1, token_count=1), "at least 1"),
        (lambda: step(SecondOrderPlan(method="kfak")), "kfac"),
        (lambda: place_longest_first([1.0], 0), "at least 1"),
    ],
)
def test_plans_that_cannot_be_are_one_line(call, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        call()
    assert words in str(error.value)
