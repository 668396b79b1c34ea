"""Stage splits: equal to brute force, with and without memory limits, and never averaged."""

import random
from itertools import combinations, pairwise

import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.training.stage_split import (
    MemoryLimit,
    StageLayer,
    split_stages,
)


def drawn(draw, count):
    return [
        StageLayer(forward_s=draw.choice([1, 1, 1, 2.5]), backward_s=draw.choice([2, 2, 3]), weight_s=1,
                   state_bytes=draw.randint(1, 9), activation_bytes=draw.randint(0, 4))
        for _ in range(count)
    ]  # fmt: skip


def all_cuts(count, stages):
    return [(0, *inner, count) for inner in combinations(range(1, count), stages - 1)]


def longest(layers, cuts):
    return max(sum(one.forward_s + one.backward_s for one in layers[a:b]) for a, b in pairwise(cuts))


def held(layers, cuts, limit):
    ranks = [0] * (max(limit.rank) + 1)
    for stage, (a, b) in enumerate(pairwise(cuts)):
        each = sum(one.state_bytes + limit.in_flight_count[stage] * one.activation_bytes for one in layers[a:b])
        ranks[limit.rank[stage]] += each
    return max(ranks)


def test_the_longest_stage_is_as_short_as_brute_force_finds():
    draw = random.Random(1)
    for _ in range(60):
        layers = drawn(draw, draw.randint(4, 11))
        stages = draw.randint(1, 4)
        best = min(longest(layers, cuts) for cuts in all_cuts(len(layers), stages))
        split = split_stages(layers, stages)
        assert max(split.stage_s) == pytest.approx(best)
        assert sum(split.layer_count) == len(layers)


def test_memory_limits_are_met_by_the_best_split_that_fits_or_refused():
    draw, refused = random.Random(2), 0
    for _ in range(80):
        layers = drawn(draw, draw.randint(5, 10))
        ranks, chunks = draw.choice([(2, 1), (3, 1), (2, 2)])
        stages = ranks * chunks
        limit = MemoryLimit(rank_bytes=draw.randint(20, 45), rank=tuple(s % ranks for s in range(stages)),
                            in_flight_count=tuple(range(stages, 0, -1)))  # fmt: skip
        fitting = [cuts for cuts in all_cuts(len(layers), stages) if held(layers, cuts, limit) <= limit.rank_bytes]
        if not fitting:
            refused += 1
            with pytest.raises(SpecError, match=r"no split into .* fits into .* on rank"):
                split_stages(layers, stages, limit)
            continue
        split = split_stages(layers, stages, limit)
        assert max(split.stage_s) == pytest.approx(min(longest(layers, cuts) for cuts in fitting))
        assert max(split.rank_bytes) <= limit.rank_bytes
    assert 5 < refused < 75


def test_many_layers_and_stages_are_split_at_once():
    layers = [StageLayer(forward_s=1, backward_s=2) for _ in range(126)]
    head = StageLayer(forward_s=1.6, backward_s=3.2)
    split = split_stages([*layers, head], 64)
    assert max(split.stage_s) == pytest.approx(6.0)


def test_an_uneven_split_is_not_averaged():
    layers = [StageLayer(forward_s=value / 3, backward_s=2 * value / 3) for value in (1, 2, 2, 3)]
    assert max(split_stages(layers, 4).stage_s) == pytest.approx(3.0)


@pytest.mark.parametrize(("count", "stages"), [(3, 4), (3, 0)])
def test_more_stages_than_layers_are_refused(count, stages):
    with pytest.raises(SpecError, match="at least one layer per stage"):
        split_stages([StageLayer(forward_s=1, backward_s=2)] * count, stages)
