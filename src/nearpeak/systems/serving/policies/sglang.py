"""Scheduling of SGLang: prompts first in steps of their own, admission by an expected share of the outputs."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="sglang",
    title="SGLang: prompts first, decodes wait; admission by a falling share of outputs; the least served is retracted",
    source=(
        "sglang/srt/managers/scheduler.py (get_next_batch_to_run), schedule_policy.py (PrefillAdder), "
        "schedule_batch.py (retract_decode); defaults in server_args.py (chunked_prefill_size 8,192 below 90 GB)"
    ),
    puts_prompts_first=True,
    mixes=False,
    is_chunked=True,
    reservation="ratio",
    victim="least_served",
    step_token_count=8192,
    sequence_count=2048,
)  # fmt: skip
