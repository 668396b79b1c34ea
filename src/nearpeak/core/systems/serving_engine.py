"""Settings of a serving engine: limits of a step, KV blocks, prefix cache, speculation and adapters."""

from dataclasses import dataclass

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine as it is configured; 0 takes the default of its policy where the field says so.

    >>> Engine(policy="vllm", kv_block_count=2588).kv_token_count
    41408
    """

    policy: str
    """Name of the scheduling policy."""
    kv_block_count: int
    """Blocks of the KV cache of one rank."""
    block_token_count: int = 16
    """Tokens of a block."""
    step_token_count: int = 0
    """Most tokens of a step (vLLM `max_num_batched_tokens`); 0 for the policy's default."""
    sequence_count: int = 0
    """Most running sequences of a rank (vLLM `max_num_seqs`); 0 for the policy's default."""
    context_token_count: int = 0
    """Longest context that the model takes; 0 where no limit is to be checked."""
    is_chunked: bool | None = None
    """Whether long prompts are cut into chunks; none for the policy's default."""
    has_prefix_cache: bool = True
    """Whether blocks of prompts are kept for later requests, least recently used ones evicted first."""
    rank_count: int = 1
    """Attention data-parallel ranks that step together: each has its own sequences and cache."""
    rank_wait_step_count: int = 0
    """Steps after which prompts of some ranks start without those of others; 0: none waits for others."""
    rank_gather_step_count: int = 0
    """Steps that prompts wait for more of them once each rank has one."""
    draft_token_count: int = 0
    """Tokens that speculation drafts per sequence and step; 0 without speculation."""
    acceptance_ratio: float = 0.0
    """Probability that a drafted token is accepted, given that all before it were."""
    draft_s: float = 0.0
    """Time of the draft model per drafted token of a step."""
    request_s: float = 0.0
    """Time from a request's arrival until the engine's queue has it: HTTP, tokenisation."""
    turnaround_s: float = 0.0
    """Time from the last token of a request until the client of a closed loop sends the next."""
    reply_delay_count: int = 0
    """Steps by which first tokens leave the engine late: 1 where the host works a step behind the device, else 0."""
    adapter_count: int = 0
    """Most LoRA adapters of a step (vLLM `max_loras`); 0 for no limit."""
    adapter_load_s: float = 0.0
    """Time that loading an absent adapter adds to a step."""

    def __post_init__(self) -> None:
        """Refuse settings that no engine runs with."""
        for name in ("kv_block_count", "block_token_count", "rank_count"):
            if getattr(self, name) < 1:
                raise SpecError(f"engine: {name}={getattr(self, name)} must be at least 1")
        for name in (
            "step_token_count", "sequence_count", "context_token_count", "draft_token_count", "adapter_count",
            "rank_wait_step_count", "rank_gather_step_count",
        ):  # fmt: skip
            if getattr(self, name) < 0:
                raise SpecError(f"engine: {name}={getattr(self, name)} must be at least 0")
        if self.request_s < 0 or self.turnaround_s < 0 or self.reply_delay_count not in (0, 1):
            raise SpecError(
                f"engine: request_s={self.request_s:g} and turnaround_s={self.turnaround_s:g} must be at least 0, "
                f"reply_delay_count={self.reply_delay_count} 0 or 1"
            )
        if not 0 <= self.acceptance_ratio <= 1:
            raise SpecError(f"engine: acceptance_ratio={self.acceptance_ratio} must lie between 0 and 1")

    @property
    def kv_token_count(self) -> int:
        """Tokens that the cache of one rank holds."""
        return self.kv_block_count * self.block_token_count

    @property
    def step_tokens_ratio(self) -> float:
        """Expected tokens per sequence and step: (1 − α^(k+1)) / (1 − α).

        Source: Leviathan et al. 2023, arXiv:2211.17192, equation 1.

        >>> engine = Engine(policy="vllm", kv_block_count=1, draft_token_count=3, acceptance_ratio=0.7)
        >>> round(engine.step_tokens_ratio, 3)
        2.533
        """
        alpha, drafted = self.acceptance_ratio, self.draft_token_count
        return float(drafted + 1) if alpha == 1 else (1 - alpha ** (drafted + 1)) / (1 - alpha)
