"""Entry of the Sarathi-Serve scheduling policy: decodes first, then chunks of prompts, 512 tokens per step."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="sarathi",
    title="Sarathi-Serve: stall-free batches of decodes and prompt chunks within a token budget",
    source="Agrawal et al., OSDI 2024, arXiv:2403.02310, Algorithm 3 (token budget 512 under the strict SLO)",
    puts_prompts_first=False,
    mixes=True,
    is_chunked=True,
    reservation="step",
    step_token_count=512,
)
