"""Covering arrays hold every legal combination; greedy plans reach their goal, near the least cost, each time alike."""

import random
from itertools import combinations, product

import pytest
from tests.sampling import sampled

from nearpeak.base.covering_arrays import combinations_of, covering
from nearpeak.errors import SpecError
from nearpeak.frontends.files.sweep import swept
from nearpeak.ops import case
from nearpeak.suites.case_identity import class_of
from nearpeak.suites.weighted_cover import greedy_cover

LEVELS = {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1, 2, 3), "d": (0, 1)}
RULES = {
    "nothing is refused": lambda row: "",
    "a pair is refused": lambda row: "x" if (row["a"], row["c"]) == (2, 3) else "",
    "a level needs another": lambda row: "x" if row["c"] == 2 and row["d"] != 1 else "",
    "a chain": lambda row: "x" if row["a"] < row["b"] or (row["b"] and row["c"] == 3) else "",
}


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("restarts", [0, 3])
def test_every_legal_combination_occurs_and_every_row_is_legal(rule, strength, restarts):
    refusal = RULES[rule]
    array = covering(LEVELS, strength, refusal, restarts=restarts)
    legal = [row for values in product(*LEVELS.values()) if not refusal(row := dict(zip(LEVELS, values, strict=True)))]
    possible = {part for row in legal for part in combinations(row.items(), strength)}
    held = {part for row in array.rows for part in combinations(((name, row[name]) for name in LEVELS), strength)}
    assert held == possible
    assert all(not refusal(dict(row)) for row in array.rows)
    assert set(array.infeasible) == set(combinations_of(LEVELS, strength)) - possible
    assert len(array.rows) <= len(legal)


def test_pairs_of_ten_flags_need_few_rows():
    flags = {f"f{n}": (False, True) for n in range(10)}
    assert len(covering(flags, 2, lambda row: "").rows) <= 12


@pytest.mark.parametrize(("parameters", "levels", "most"), [(6, 4, 24), (10, 4, 31), (12, 3, 20), (10, 2, 8)])
def test_restarts_find_arrays_with_few_rows_that_still_cover_every_pair(parameters, levels, most):
    # allpairspy 2.5.1 gives 24, 31, 17 and 8 rows.
    names = {f"p{position}": tuple(range(levels)) for position in range(parameters)}
    array = covering(names, 2, lambda row: "", restarts=5)
    assert len(array.rows) <= most
    covered = {pair for row in array.rows for pair in combinations(row.items(), 2)}
    assert covered == set(combinations_of(names, 2))


def random_instance(seed):
    draw = random.Random(seed)
    parts = range(8)
    covers = {f"c{n}": [part for part in parts if draw.random() < 0.35] for n in range(9)}
    return covers, {part: draw.uniform(0.1, 1) for part in parts}, {key: draw.uniform(0.1, 2) for key in covers}


def weight_of(keys, covers, weights):
    return sum(weights[part] for part in {part for key in keys for part in covers[key]})


@pytest.mark.parametrize("seed", sampled(range(20), 7))
def test_a_plan_reaches_its_goal_within_the_stated_factor_of_the_least_cost(seed):
    covers, weights, costs = random_instance(seed)
    weights = dict.fromkeys(weights, 1.0)  # the factor holds where every part counts alike
    goal = weight_of(covers, covers, weights) / sum(weights.values())
    keys = [pick.key for pick in greedy_cover(covers, weights, costs, goal)]
    assert weight_of(keys, covers, weights) >= goal * sum(weights.values()) * (1 - 1e-9)
    full = goal * sum(weights.values()) * (1 - 1e-9)
    every = (set(some) for size in range(10) for some in combinations(covers, size))
    least = min(sum(costs[key] for key in some) for some in every if weight_of(some, covers, weights) >= full)
    # The factor of Chvátal's greedy for n = 8 parts; dropping what is not needed only lowers the cost.
    assert least - 1e-9 <= sum(costs[key] for key in keys) <= least * sum(1 / n for n in range(1, 9)) + 1e-9
    for key in keys:
        assert weight_of(set(keys) - {key}, covers, weights) < full, f"{key} is not needed"


@pytest.mark.parametrize("seed", sampled(range(20), 7))
def test_a_plan_is_never_worse_than_random_choice_at_the_same_cost(seed):
    covers, weights, costs = random_instance(seed)
    picks = greedy_cover(covers, weights, costs, 0.8)
    draw, order, spent, taken = random.Random(seed + 100), list(covers), 0.0, []
    draw.shuffle(order)
    for key in order:
        if spent + costs[key] <= picks[-1].spent_s:
            taken.append(key)
            spent += costs[key]
    reached = weight_of([pick.key for pick in picks], covers, weights)
    assert reached >= min(weight_of(taken, covers, weights), 0.8 * sum(weights.values()))


def test_plans_are_the_same_whatever_the_order_of_the_cases():
    covers, weights, costs = random_instance(3)
    backwards = greedy_cover(dict(reversed(covers.items())), weights, costs, 0.9)
    assert greedy_cover(covers, weights, costs, 0.9) == backwards


def test_mandatory_cases_stay_and_gains_add_up():
    covers, weights, costs = random_instance(5)
    picks = greedy_cover(covers, weights, costs, 0.9, mandatory=["c8", "c2"])
    assert [pick.key for pick in picks][:2] == ["c8", "c2"]
    assert sum(pick.gain_ratio for pick in picks) == pytest.approx(picks[-1].covered_ratio)
    assert picks[-1].spent_s == pytest.approx(sum(costs[pick.key] for pick in picks))


def test_a_case_that_costs_nothing_and_a_goal_beyond_all_are_refused():
    with pytest.raises(SpecError, match="b costs nothing"):
        greedy_cover({"a": "x", "b": "x"}, {"x": 1}, {"a": 1, "b": 0})
    with pytest.raises(SpecError, match=r"goal 1\.5"):
        greedy_cover({"a": "x"}, {"x": 1}, {"a": 1}, 1.5)


def test_classes_keep_apart_what_runs_another_way():
    def product(**axes):
        return class_of(case("gemm", **{"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"} | axes), saturated=True)

    assert product() == product(n=14336) == product(m=8192)
    others = [
        product(k=1),
        product(n=4097),
        product(m=32),
        product(dtype="fp16"),
        product(layout="nt"),
        product(bias=True),
    ]
    assert len({product(), *others}) == 7


def test_a_sweep_takes_a_covering_array_instead_of_all_points():
    line = "op=gemm dtype=bf16,fp16 m=1,7,64 n=near(64) k=edges(1,128) layout=nn,nt,tn,tt"
    whole, few = swept("s", line), swept("s", f"{line} cover=2")
    assert len(whole.calls) == 2 * 3 * 3 * 4 * 4
    assert len(few.calls) <= 24
    pairs = {(dict(c.case.axes)["k"], dict(c.case.attributes)["layout"]) for c in few.calls}
    assert len(pairs) == 16
    with pytest.raises(SpecError, match="cover=9: is not a whole number from 1 to 4"):
        swept("s", f"{line} cover=9")


def test_a_budget_is_kept_and_spent_on_what_covers_most():
    covers, weights = {"a": "x", "b": "y", "c": "z", "d": "xyz"}, {"x": 5, "y": 3, "z": 1}
    costs = {"a": 1, "b": 1, "c": 1, "d": 9}
    assert [pick.key for pick in greedy_cover(covers, weights, costs, budget_s=2)] == ["a", "b"]
    assert greedy_cover(covers, weights, costs, budget_s=2)[-1].spent_s == 2
    # the ratio alone would take a, after which d, which covers all, no longer fits
    costs = {"a": 1, "b": 9, "c": 9, "d": 9}
    assert [pick.key for pick in greedy_cover(covers, weights, costs, budget_s=9.5)] == ["d"]
    with pytest.raises(SpecError, match="mandatory cases alone take more than the budget of 8 s"):
        greedy_cover(covers, weights, costs, mandatory=["d"], budget_s=8)
