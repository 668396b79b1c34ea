"""Request-level batching: a batch is formed, runs until its last request has finished, and pads those before."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="static",
    title="Static batches: all prompts in one step, then decodes until the last request has finished",
    source="Yu et al., OSDI 2022, section 2 (request-level scheduling of FasterTransformer behind Triton)",
    puts_prompts_first=True,
    mixes=False,
    is_chunked=False,
    reservation="output",
    is_whole_batch=True,
)
