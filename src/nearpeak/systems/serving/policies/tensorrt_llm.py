"""Scheduling of TensorRT-LLM by GUARANTEED_NO_EVICT: a request starts once all of its blocks are certain."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="tensorrt_llm",
    title="TensorRT-LLM, guaranteed no evict: in-flight batching, blocks of the whole output reserved at admission",
    source=(
        "TensorRT-LLM documentation, 'Useful runtime options' (capacity scheduler policy; chunked context off by "
        "default), and build defaults max_num_tokens 8,192, max_batch_size 2,048"
    ),
    puts_prompts_first=False,
    mixes=True,
    is_chunked=False,
    reservation="output",
    step_token_count=8192,
    sequence_count=2048,
)  # fmt: skip
