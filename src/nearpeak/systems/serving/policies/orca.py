"""Scheduling of Orca: iterations of whole prompts and decodes, outputs reserved at admission, in order of arrival."""

from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICY = SchedulingPolicy(
    name="orca",
    title="Orca: iteration-level scheduling, whole prompts beside decodes, slots of the whole output reserved",
    source="Yu et al., OSDI 2022, Algorithm 1 (maximum batch size and slots are the operator's)",
    puts_prompts_first=False,
    mixes=True,
    is_chunked=False,
    reservation="output",
)
