"""Scheduling of TensorRT-LLM by MAX_UTILIZATION: requests start when blocks are free now, and may be paused."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="tensorrt_llm_max_utilization",
    title="TensorRT-LLM, max utilization: in-flight batching, requests paused and recomputed when blocks run out",
    source="TensorRT-LLM documentation, 'Useful runtime options' (capacity scheduler policy), and build defaults",
    puts_prompts_first=False,
    mixes=True,
    is_chunked=False,
    reservation="step",
    step_token_count=8192,
    sequence_count=2048,
)
