"""A scheduling policy of a serving engine as data: the order, mixing, reservation and preemption of requests."""

from dataclasses import dataclass

RESERVATIONS = ("step", "output", "ratio")
"""What must be free to admit a request: the blocks of its next step, those of its whole prompt and output, or those of
its prompt and output beside a share of the outputs of running requests."""
VICTIMS = ("last", "least_served")
"""Which running request loses its cache when blocks run out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """The rules by which an engine forms its steps."""

    name: str
    """Name of its file."""
    title: str
    """What it does, in words."""
    source: str
    """Paper or code that states the rules and the defaults."""
    puts_prompts_first: bool
    """Whether waiting prompts delay decoding sequences; otherwise running requests take their tokens first."""
    mixes: bool
    """Whether prompts and decoding sequences share a step."""
    is_chunked: bool
    """Whether prompts are cut at the token limit of a step by default."""
    reservation: str
    """One of RESERVATIONS."""
    victim: str = "last"
    """One of VICTIMS."""
    is_whole_batch: bool = False
    """Whether a batch runs until its last request has finished, before the next is formed."""
    step_token_count: int = 0
    """Default of the most tokens of a step; 0 for no limit."""
    sequence_count: int = 0
    """Default of the most running sequences; 0 where the source leaves it to the operator."""
