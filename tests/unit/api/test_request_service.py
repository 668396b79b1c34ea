"""Requests served with predicted step times."""

import pytest

from nearpeak.api.serving.request_service import engine_of, serve_requests
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.systems.serving.latency_metrics import request_metric
from nearpeak.systems.serving.loads.arrival_process import open_load

LOAD = open_load(3.0, 60, input_count=512, output_count=32, seed=1)
SMALL = {"step_token_count": 512, "sequence_count": 16}


def test_more_blocks_are_never_worse_and_a_faster_device_is_faster():
    few = serve_requests(LOAD, "llama-3.1-8b", "a100_sxm_80gb", kv_block_count=80, **SMALL)
    many = serve_requests(LOAD, "llama-3.1-8b", "a100_sxm_80gb", kv_block_count=2000, **SMALL)
    fast = serve_requests(LOAD, "llama-3.1-8b", "h100_sxm", kv_block_count=2000, **SMALL)
    means = [request_metric(outcome, "latency").mean() for outcome in (few, many, fast)]
    assert means == sorted(means, reverse=True)


def test_settings_come_from_the_family_of_the_engine():
    engine, _ = engine_of(
        "llama-3.1-8b", "h100_sxm", "trtllm", ServingLayout(), context=1024, step_tokens=512, sequences=16
    )
    assert (engine.policy, engine.reply_delay_count, engine.request_s) == ("tensorrt_llm", 1, 2.5e-3)
    assert 400_000 < engine.kv_token_count < 600_000


def test_what_cannot_be_served_is_refused_in_one_line():
    with pytest.raises(SpecError, match="context holds 500"):
        serve_requests(LOAD, "llama-3.1-8b", "h100_sxm", context_token_count=500, **SMALL)
    with pytest.raises(SpecError, match="KV blocks; the cache has 4"):
        serve_requests(LOAD, "llama-3.1-8b", "h100_sxm", kv_block_count=4, **SMALL)
    with pytest.raises(UnknownNameError, match="engine 'vllm_v9': not known"):
        serve_requests(LOAD, "llama-3.1-8b", "h100_sxm", engine="vllm_v9")
