"""Serving answers: latencies, limits, cost and trust."""

import pytest

from nearpeak.api.serving.serving_plan import serving_time
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError

LOAD = {"input_tokens": 1024, "output_tokens": 256}


def test_a_closed_loop_is_answered_with_intervals_cost_and_trust():
    answer = serving_time("llama-3.1-8b", "h100_sxm", concurrency=8, price_usd_per_device_hour=2.0, **LOAD)
    assert answer.ttft_s is not None
    assert answer.tpot_s.low < answer.tpot_s.value < answer.tpot_s.high
    assert 4e-3 < answer.tpot_s.value < 15e-3
    assert answer.usd_per_million_tokens == pytest.approx(2.0 / 3600 / answer.output_tokens_per_s * 1e6)
    assert sum(answer.trust.values()) == pytest.approx(1)
    assert answer.limiter


def test_more_devices_shorten_a_batch():
    one, four = (
        serving_time("llama-3.1-8b", "a100_sxm_80gb", engine="vllm_v0", batch=16, layout=ServingLayout(tp=tp), **LOAD)
        for tp in (1, 4)
    )
    assert four.latency_s < one.latency_s


def test_waiting_requests_fill_the_cache():
    answer = serving_time("llama-3.1-8b", "h100_sxm", engine="trtllm", has_trust=False, **LOAD)
    assert answer.mean_batch * (1024 + 128) <= answer.kv_token_count
    assert answer.ttft_s is None
    assert answer.mean_batch < 2 * 256, "some steps have no prompt"
    assert sum(answer.parts_s.values()) == pytest.approx(answer.tpot_s.value, rel=1e-9)


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="no room"):
        serving_time("llama-3.1-70b", "h100_sxm", concurrency=1, **LOAD)


def test_two_loads_contradict_each_other():
    with pytest.raises(SpecError, match="contradict"):
        serving_time("llama-3.1-8b", "h100_sxm", concurrency=1, batch=2, **LOAD)
