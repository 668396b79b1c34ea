"""The dynamic batcher: waits with known answers, delays that are kept, batches that are as large as they may be."""

import numpy as np
import pytest

from nearpeak.base.compilation import Kernel
from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes, cheapest, serve_batches, serve_ensemble
from nearpeak.systems.serving.inference_server.model_config import ModelConfig, with_batching

CONSTANT = BatchTimes(batch_count=(1, 64), seconds_s=(1.0, 1.0))
LINEAR = BatchTimes(batch_count=(1, 64), seconds_s=(1e-3, 64e-3))


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


def batching(**fields):
    return ModelConfig(**({"name": "net", "most_batch_count": 8, "has_dynamic_batching": True} | fields))


def poisson(rate, count, seed=0):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def test_one_instance_without_batches_waits_as_the_recursion_says():
    arrivals, wait, exact = poisson(0.8, 2000), 0.0, []
    for gap in np.diff(arrivals, prepend=arrivals[0]):
        wait = max(0.0, wait + (1.0 if exact else 0.0) - gap)
        exact.append(wait)
    served = serve_batches(arrivals, batching(most_batch_count=1, has_dynamic_batching=False), CONSTANT)
    assert served.start_s - served.arrival_s == pytest.approx(np.array(exact), abs=1e-6)


def test_batches_by_hand():
    """A batch at once, then those who came meanwhile, at most eight."""
    arrivals = np.concatenate([[0.0], np.linspace(0.1, 0.9, 10), [5.0]])
    served = serve_batches(arrivals, batching(), CONSTANT)
    assert served.batch_count.tolist() == [1] + [8] * 8 + [2] * 2 + [1]
    assert served.end_s.tolist() == [1.0] + [2.0] * 8 + [3.0] * 2 + [6.0]


def test_a_request_waits_for_others_until_the_delay_and_no_longer():
    config = batching(queue_delay_s=0.3, preferred_count=(4,))
    served = serve_batches(np.array([0.0, 0.1, 5.0, 5.05, 5.1, 5.2, 9.0]), config, CONSTANT)
    assert served.start_s.tolist() == pytest.approx([0.3, 0.3, 5.2, 5.2, 5.2, 5.2, 9.3])


def test_requests_of_many_items_fill_batches_by_items():
    served = serve_batches(np.zeros(4), batching(), CONSTANT, items=4)
    assert served.batch_count.tolist() == [8, 8, 8, 8]
    with pytest.raises(SpecError, match="a request of 9 items exceeds max_batch_size 8"):
        serve_batches(np.zeros(1), batching(), CONSTANT, items=9)


@pytest.mark.parametrize(("ratio", "rate"), [(0.0, 2.0), (1.0, 1.0)])
def test_instances_of_one_device_add_what_they_do_not_share(ratio, rate):
    times = BatchTimes(batch_count=(1,), seconds_s=(1.0,), sharing_ratio=ratio)
    config = batching(most_batch_count=1, instance_count=2)
    served = serve_batches(np.zeros(400), config, times, concurrency=8)
    assert 400 / served.end_s.max() == pytest.approx(rate, rel=0.01)
    apart = serve_batches(np.zeros(400), config, times, concurrency=8, device_count=2)
    assert 400 / apart.end_s.max() == pytest.approx(2 * rate, rel=0.02)


def test_a_closed_loop_obeys_little():
    served = serve_batches(np.zeros(600), batching(queue_delay_s=2e-3), LINEAR, concurrency=12, think_s=5e-3)
    inside = slice(100, 500)
    rate = 400 / (np.sort(served.end_s)[500] - np.sort(served.end_s)[100])
    assert rate * (served.latency_s[inside].mean() + 5e-3) == pytest.approx(12, rel=0.02)


def test_a_stall_is_felt_by_all_who_come_during_it():
    """An open loop keeps sending: a stall of 1 s delays a tenth of the requests of 10 s, by half of it in the mean."""
    arrivals = np.linspace(0, 10, 1000, endpoint=False)
    smooth = serve_batches(arrivals, batching(), LINEAR)
    free = arrivals.copy()
    free[(arrivals >= 4) & (arrivals < 5)] = 5.0
    stalled = serve_batches(free, batching(), LINEAR)
    felt = stalled.end_s - arrivals
    assert np.quantile(felt, 0.99) > 0.85
    assert np.quantile(smooth.latency_s, 0.99) < 0.01


def test_a_chain_of_models_passes_requests_on():
    first, second = serve_ensemble(poisson(100, 200), [(batching(), LINEAR), (batching(instance_count=2), LINEAR)])
    assert second.arrival_s.tolist() == first.end_s.tolist()
    assert (second.start_s >= first.end_s).all()


def test_the_cheapest_configuration_has_the_fewest_instances_that_meet_the_limit():
    arrivals = poisson(1500, 1500)
    grid = [
        with_batching(batching(), instances=count, most_batch=most, queue_delay_s=0.0)
        for count in (1, 2, 4) for most in (1, 8)
    ]  # fmt: skip
    times = BatchTimes(batch_count=(1, 8), seconds_s=(1e-3, 3e-3))
    best, tail = cheapest(grid, lambda config: serve_batches(arrivals, config, times), limit_s=0.02)
    assert (best.instance_count, best.most_batch_count) == (1, 8)
    assert tail <= 0.02
    with pytest.raises(SpecError, match="no configuration meets p99 <= 10 µs; nearest: "):
        cheapest(grid, lambda config: serve_batches(arrivals, config, times), limit_s=1e-5)


def test_times_between_and_beyond_sizes_are_linear():
    times = BatchTimes(batch_count=(1, 5), seconds_s=(1.0, 3.0)).by_size(7)
    assert times[1:].tolist() == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    with pytest.raises(SpecError, match="rising batch sizes"):
        BatchTimes(batch_count=(2, 1), seconds_s=(1.0, 1.0))
