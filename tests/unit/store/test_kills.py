"""A small sample of the benchmark: commands that write are killed at random moments, and nothing is lost or twice."""

import pytest
from benchmarks.kills import TASKS, attack
from tests.sampling import in_turn

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("task", "make_place"), in_turn(TASKS, ["sqlite", "postgresql"]), indirect=["make_place"])
def test_a_killed_command_loses_nothing_that_it_acknowledged_and_writes_nothing_twice(task, make_place):
    outcome = attack(task, lambda _: make_place(), 2, seed=1)
    assert outcome.kills >= 2
    assert (outcome.lost, outcome.twice, outcome.damaged) == (0, 0, 0)
