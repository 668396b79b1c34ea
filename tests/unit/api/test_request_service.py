"""Settings of an engine family on a device."""

import pytest

from nearpeak.api.serving.request_service import engine_of
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import UnknownNameError


def test_settings_come_from_the_family_of_the_engine():
    engine, _ = engine_of(
        "llama-3.1-8b", "h100_sxm", "trtllm", ServingLayout(), context=1024, step_tokens=512, sequences=16
    )
    assert (engine.policy, engine.reply_delay_count, engine.request_s) == ("tensorrt_llm", 1, 2.5e-3)
    assert 400_000 < engine.kv_token_count < 600_000
    with pytest.raises(UnknownNameError, match="engine 'vllm_v9': not known"):
        engine_of("llama-3.1-8b", "h100_sxm", "vllm_v9", ServingLayout(), context=1024)
