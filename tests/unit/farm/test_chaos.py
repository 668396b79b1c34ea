"""A small sample of the benchmark: workers and the scheduler are killed, and each job's result counts once."""

import pytest
from benchmarks._farm import chaos


def test_nothing_is_lost_or_counted_twice_when_workers_and_scheduler_are_killed():
    pytest.importorskip("distributed", reason="Dask is not installed (extra farm)")
    found = chaos(8, worker_count=2, seed=3, kill_every_count=3, restart_count=1, limit_s=240.0, seconds=0.4)
    assert found.accepted_count == 8
    assert (found.lost_count, found.twice_count, found.overlap_count) == (0, 0, 0)
    assert found.restart_count == 1
    assert found.kill_count >= 1
