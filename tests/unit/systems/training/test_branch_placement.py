"""Branches on disjoint ranks: equal to brute force, never below the bound, faults in one line."""

import random
from itertools import permutations, product

import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.training.branch_placement import Branch, place_branches


def drawn(draw, count, ranks):
    branches = []
    for place in range(count):
        widths = sorted(draw.sample(range(1, ranks + 1), draw.randint(1, min(3, ranks))))
        work = draw.choice([1.0, 2.0, 3.0, 6.0])
        time = {width: work / width ** draw.choice([1.0, 0.5]) for width in widths}
        needs = tuple(f"b{other}" for other in range(place) if draw.random() < 0.3)
        branches.append(Branch(name=f"b{place}", time_s=time, needs=needs, boundary_s=draw.choice([0.0, 0.25])))
    return branches


def earliest(placed, width, time, ready, ranks):
    moments = sorted({ready, *(end for _, end, _ in placed if end > ready)})
    for moment in moments:
        events = [moment, *(start for start, _, _ in placed if moment < start < moment + time)]
        if all(sum(w for s, e, w in placed if s <= event < e) + width <= ranks for event in events):
            return moment
    raise AssertionError("the end of all branches is free")


def brute_force(branches, ranks):
    best = float("inf")
    for order in permutations(branches):
        names = [branch.name for branch in order]
        if any(names.index(need) > place for place, branch in enumerate(order) for need in branch.needs):
            continue
        for widths in product(*(branch.time_s for branch in order)):
            done = {}
            for branch, width in zip(order, widths, strict=True):
                ready = 0.0
                for need in branch.needs:
                    both = width == ranks == done[need][2]
                    ready = max(ready, done[need][1] + (0.0 if both else branch.boundary_s))
                start = earliest(list(done.values()), width, branch.time_s[width], ready, ranks)
                done[branch.name] = (start, start + branch.time_s[width], width)
            best = min(best, max(end for _, end, _ in done.values()))
    return best


def test_few_branches_are_placed_as_fast_as_brute_force_finds():
    draw = random.Random(0)
    for _ in range(25):
        ranks = draw.randint(1, 4)
        branches = drawn(draw, draw.randint(1, 4), ranks)
        placed = place_branches(branches, ranks)
        assert placed.is_exact
        assert placed.time_s == pytest.approx(brute_force(branches, ranks))
        assert placed.bound_s - 1e-12 <= placed.time_s


def test_placements_keep_within_the_ranks_and_after_what_they_need():
    draw = random.Random(1)
    for count in (6, 9, 30):
        branches = drawn(draw, count, 8)
        placed = place_branches(branches, 8)
        ends = {b.name: placed.start_s[b.name] + b.time_s[placed.rank_count[b.name]] for b in branches}
        for branch in branches:
            start = placed.start_s[branch.name]
            assert all(ends[need] <= start + 1e-12 for need in branch.needs)
            busy = sum(placed.rank_count[b.name] for b in branches if placed.start_s[b.name] <= start < ends[b.name])
            assert busy <= 8
        assert placed.bound_s <= placed.time_s <= placed.serial_s + 1e-12


def test_branches_that_scale_perfectly_gain_nothing_beside_each_other():
    branches = [Branch(name=name, time_s={1: 4.0, 2: 2.0, 4: 1.0}) for name in "abcd"]
    placed = place_branches(branches, 4)
    assert (placed.time_s, placed.serial_s, placed.is_exact) == (4.0, 4.0, True)


def test_branches_that_do_not_scale_run_beside_each_other():
    branches = [Branch(name=name, time_s={1: 4.0, 4: 3.0}) for name in "abcd"]
    placed = place_branches([*branches, Branch(name="join", time_s={4: 1.0}, needs=tuple("abcd"))], 4)
    assert (placed.time_s, placed.serial_s) == (5.0, 13.0)
    assert set(placed.rank_count.values()) == {1, 4}


@pytest.mark.parametrize(
    ("branches", "words"),
    [
        ([], "at least one"),
        ([Branch(name="a", time_s={8: 1.0})], "on 1 to 4 ranks"),
        ([Branch(name="a", time_s={1: 1.0}, needs=("b",))], "needs 'b', which is no branch"),
        ([Branch(name="a", time_s={1: 1.0}, needs=("b",)), Branch(name="b", time_s={1: 1.0}, needs=("a",))],
         "need each other"),
    ],
)  # fmt: skip
def test_branches_that_cannot_run_are_one_line(branches, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        place_branches(branches, 4)
    assert words in str(error.value)
