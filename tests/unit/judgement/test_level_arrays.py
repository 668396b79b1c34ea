"""The NumPy form of the filter over levels says what its loops say, which machine code runs."""

import numpy as np
import pytest

from nearpeak.judgement import level_search
from nearpeak.judgement.level_arrays import moves_of, passed_backward, passed_forward
from nearpeak.judgement.level_filter import forward, jumps


@pytest.mark.parametrize("gap", [0, 7])
@pytest.mark.parametrize("carry", [0.0, 0.6])
def test_arrays_and_loops_give_the_same_likelihoods_and_jumps(gap, carry):
    draw = np.random.default_rng(gap)
    levels = np.where(np.arange(40) < 22, 0.0, 0.2) + 0.1 * (draw.random(40) < 0.2) + draw.normal(0, 0.02, 40)
    levels[9] += 3.0
    grid = level_search.grid_of(levels, 0.0)
    choices = [np.array([2, 1, 0, drift, gap, rate]) for drift, rate in ((0, 0), (1, 1), (2, 2))]
    motions = [level_search.motion_of(choice) for choice in choices]
    tables = [
        level_search.tables_of(grid.bins, grid.spread, scale, skew, carry)
        for scale, skew in ((1.0, 1.6), (0.6, 1.0), (1.3, 2.4))
    ]
    moves = moves_of(grid.units, grid.bins, tables, motions)
    got = passed_forward(moves, np.empty(0))
    for place, (table, motion) in enumerate(zip(tables, motions, strict=True)):
        listed = table._replace(near=table.near.tolist(), wide=table.wide.tolist(), carried=table.carried.tolist())
        filtered, jumped = np.zeros((40, 2, grid.bins)), np.zeros((40, 3))
        units = grid.units.tolist()
        assert forward.plain(units, grid.bins, listed, motion, filtered) == pytest.approx(got[place], rel=1e-12)
        jumps.plain(units, grid.bins, listed, motion, filtered, jumped)
        one = moves_of(grid.units, grid.bins, [table], [motion])
        levels_then, jumped_then = np.empty_like(one.wide), np.zeros((40, 3))
        passed_forward(one, levels_then)
        passed_backward(one, levels_then, jumped_then)
        np.testing.assert_allclose(levels_then[:, 0], filtered[:, : 2 if gap else 1], rtol=1e-9, atol=1e-30)
        np.testing.assert_allclose(jumped_then, jumped, rtol=1e-8, atol=1e-12)


def test_choices_gathered_in_parts_give_the_same(monkeypatch):
    values = np.random.default_rng(1).normal(0, 0.02, 30)
    whole, parts = np.zeros((30, 3)), np.zeros((30, 3))
    monkeypatch.setattr(level_search.forward, "is_plain_for", lambda _count: True)
    level_search.searched(values, whole)
    monkeypatch.setattr(level_search, "MOST_MOVES", 1)
    level_search.searched(values, parts)
    np.testing.assert_allclose(parts, whole, rtol=1e-9)
