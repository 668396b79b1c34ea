"""Tandem of index and ranker: closed forms, windows, batch times by hand, and the search against brute force."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks._queue_formulas import mean_wait

from nearpeak.core.systems.retrieval_answer import RecallPoint
from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes
from nearpeak.systems.serving.retrieval import service_search
from nearpeak.systems.serving.retrieval.recall_curve import FLAT
from nearpeak.systems.serving.retrieval.service_search import Wanted, cheapest_services
from nearpeak.systems.serving.retrieval.tandem_queue import (
    VectorSet,
    index_times,
    setting_of,
    shard_bytes,
    tandem_latencies,
)

MILLION = VectorSet(count=1_000_000, width_count=128, number_format="fp16", found_count=100)
PROBED = RecallPoint(index="ivf", list_ratio=1.0, probe_ratio=0.02, recall_ratio=0.95, scanned_ratio=0.02)
SINGLE = BatchTimes(batch_count=(1,), seconds_s=(1e-3,))
BATCHED = BatchTimes(batch_count=(1, 8), seconds_s=(1e-3, 2e-3))


def by_rows(kernel):
    """A device whose time is that of the rows that it reads."""
    return 1e-9 * dict(kernel.axes)["vectors"]


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_by_one_the_index_waits_as_pollaczek_and_khinchine_say(load):
    (only,) = tandem_latencies(((SINGLE, 1),), rate_per_s=1000 * load, window_s=0.0, count=40_000)
    waits_s = only.start_s - only.arrival_s
    assert waits_s.mean() == pytest.approx(mean_wait(load, 1e-3), rel=0.05)


def test_behind_an_equal_constant_server_nobody_waits():
    first, second = tandem_latencies(((SINGLE, 1), (SINGLE, 1)), rate_per_s=900, window_s=0.0, count=3000)
    assert second.arrival_s == pytest.approx(first.end_s)
    assert (second.start_s - second.arrival_s).max() < 1e-12


def test_a_window_delays_by_no_more_than_itself_and_fills_batches():
    rare, _ = (tandem_latencies(((BATCHED, 1),), rate_per_s=1.0, window_s=window_s, count=200)[0]
               for window_s in (2e-3, 0.0))  # fmt: skip
    alone = rare.batch_count == 1
    assert (rare.start_s - rare.arrival_s)[alone].max() <= 2e-3 * (1 + 1e-9)
    assert np.median(rare.start_s - rare.arrival_s) == pytest.approx(2e-3)
    sizes = [
        tandem_latencies(((BATCHED, 1),), rate_per_s=500, window_s=window_s, count=3000)[0].batch_count.mean()
        for window_s in (0.0, 4e-3)
    ]
    assert sizes[1] > sizes[0]


def test_golden_bytes_and_batch_times_are_those_by_hand():
    ten = replace(MILLION, count=10_000_000)
    flat = setting_of(FLAT, ten, shards=1, window_s=0.0)
    assert shard_bytes(flat, ten, 2.0) == 2.56e9 + 8e7
    assert shard_bytes(setting_of(FLAT, ten, shards=4, window_s=0.0), ten, 2.0) == pytest.approx(2.64e9 / 4)
    assert set(index_times(flat, ten, by_rows).seconds_s) == {1e-2}
    lists = setting_of(PROBED, MILLION, shards=1, window_s=0.0)
    assert (lists.list_count, lists.probe_count, lists.words) == (1000, 20, "ivf 20 of 1,000")
    times = index_times(lists, MILLION, by_rows)
    assert times.seconds_s[0] == pytest.approx(1e-6 + 2e-5)
    assert times.seconds_s[3] == pytest.approx(1e-6 + 1e-3 * (1 - 0.98**8), rel=1e-4)


@pytest.mark.parametrize("rank", [None, BATCHED])
def test_the_cheapest_service_is_that_of_simulating_all(rank, monkeypatch):
    monkeypatch.setattr(service_search, "QUERIES", 250)
    monkeypatch.setattr(service_search, "SHARDS", (1, 2))
    monkeypatch.setattr(service_search, "WINDOWS_S", (0.0, 1e-3))
    wanted = Wanted(rate_per_s=1500, limit_s=4.5e-3, capacity_bytes=1e9, element_bytes=2.0)
    found = cheapest_services([FLAT, PROBED], MILLION, wanted, by_rows, rank)
    every = [
        service_search._simulated(candidate, wanted, rank)
        for group in service_search._groups([FLAT, PROBED], MILLION, wanted, by_rows, rank)
        for candidate in group
    ]
    good = [option for option in every if option.latency_s["p99"] <= 4.5e-3]
    assert (found[0].device_count, found[0].latency_s["p99"]) == min(
        (option.device_count, option.latency_s["p99"]) for option in good
    )
    assert len(found) > 1
    assert all(0 < ratio < 1 for ratio in found[0].load_ratio.values())


def test_what_cannot_be_met_says_what_comes_nearest():
    wanted = Wanted(rate_per_s=10, limit_s=1e-5, capacity_bytes=1e9, element_bytes=2.0)
    with pytest.raises(SpecError, match=r"nearest is .* limited by the index"):
        cheapest_services([FLAT], MILLION, wanted, by_rows, None)
    with pytest.raises(SpecError, match="do not fit into 8 devices"):
        cheapest_services([FLAT], MILLION, replace(wanted, capacity_bytes=1e6), by_rows, None)
    with pytest.raises(SpecError, match="ask for more than 0"):
        tandem_latencies(((SINGLE, 1),), rate_per_s=0.0, window_s=0.0, count=5)
