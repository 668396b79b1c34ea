"""Scheduling of vLLM V1: running requests first, then waiting ones, prompts cut at the token limit of a step."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="vllm",
    title="vLLM V1: running first, chunked prompts beside decodes, recomputation of the last request under pressure",
    source=(
        "vllm/v1/core/sched/scheduler.py, Scheduler.schedule; defaults of the API server in vllm/engine/arg_utils.py "
        "(2,048 tokens and 256 sequences; larger on devices of 70 GiB and more: state them)"
    ),
    puts_prompts_first=False,
    mixes=True,
    is_chunked=True,
    reservation="step",
    step_token_count=2048,
    sequence_count=256,
)  # fmt: skip
