"""Inputs that are drawn to be timed: the same whatever the machine, valid as positions."""

import numpy as np
import pytest

import nearpeak
from nearpeak.case_tensors import random_inputs
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.case_tensors.size_limits import beyond_rounds


def test_large_inputs_are_the_same_however_many_cores_draw_them(monkeypatch):
    case = nearpeak.case("elementwise", function="relu", elements=3 * 2**20 + 5, dtype="fp32")
    monkeypatch.setattr(random_inputs, "_PIECE", 2**18)
    found = []
    for count in (1, 3):
        monkeypatch.setattr(random_inputs, "usable_core_count", lambda count=count: count)
        found.append(drawn(case)[0])
    (name,) = found[0]
    np.testing.assert_array_equal(found[0][name], found[1][name])
    assert abs(found[0][name].mean()) < 0.01
    assert abs(found[0][name].std() - 1) < 0.01
    assert len(np.unique(found[0][name][: 2**18])) > 2**17  # no piece is another's
    assert not np.array_equal(found[0][name][: 2**18], found[0][name][2**18 : 2**19])


@pytest.mark.parametrize("arguments", [
    {"op": "max_unpool", "planes": 3, "inputs": 4, "outputs": 10},
    {"op": "scatter", "rows": 5, "width": 3, "table_rows": 7, "accumulate": False},
])  # fmt: skip
def test_positions_that_are_written_once_differ(arguments):
    op = arguments.pop("op")
    index = drawn(nearpeak.case(op, dtype="fp32", **arguments))[0]["index"]
    assert all(len(set(row)) == len(row) for row in np.atleast_2d(index).tolist())


def test_how_many_places_a_case_says_are_touched_decides_before_that():
    case = nearpeak.case("scatter", rows=5, width=3, table_rows=7, touched_rows=2, dtype="fp32")
    assert len(np.unique(drawn(case)[0]["index"])) == 2


@pytest.mark.parametrize("op", ["embedding", "gather", "scatter"])
def test_where_nothing_is_known_of_the_rows_that_are_looked_up_they_are_many(op):
    table = {"rows": 100, "width": 2, "table_rows": 500}
    axes = {"embedding": {"tokens": 100, "vocab": 500, "dim": 2}}.get(op, table)
    index = drawn(nearpeak.case(op, dtype="fp32", **axes))[0]["index"]
    assert len(np.unique(index)) > 50


def test_a_case_of_more_elements_than_rounds_can_take_in_time_says_so():
    assert "too large" in beyond_rounds(nearpeak.case("softmax", rows=4096, columns=4096, dtype="bf16"))
    assert not beyond_rounds(nearpeak.case("softmax", rows=256, columns=4096, dtype="bf16"))
