"""Scheduling of vLLM before V1: whole prompts before decodes, and preemption of the newest request by recomputation."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="vllm_v0",
    title="vLLM V0: whole prompts first in steps of their own, then decodes; the last request is recomputed",
    source=(
        "vllm-project/vllm v0.5, vllm/core/scheduler.py (_schedule_default: prompts unless requests are swapped out; "
        "max_num_seqs 256; max_num_batched_tokens = max(model length, 2,048): state it for longer models)"
    ),
    puts_prompts_first=True,
    mixes=False,
    is_chunked=False,
    reservation="step",
    step_token_count=2048,
    sequence_count=256,
)
