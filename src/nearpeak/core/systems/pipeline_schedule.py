"""A pipeline schedule as data: what each rank runs, in which order."""

from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("F", "B", "I", "W", "FB")
"""Forward; whole backward; gradients of inputs; gradients of weights; a forward and a backward pass at once."""


class PipelineOp(NamedTuple):
    """One pass of a micro-batch through one stage, or two passes that overlap.

    >>> str(PipelineOp("F", 2, 0)), str(PipelineOp("FB", 0, 5, 7, 1))
    ('2F0', '(0F5;7B1)OVERLAP_F_B')
    """

    kind: str
    """One of KINDS."""
    stage: int
    """Stage of the model, counted over all ranks."""
    micro_batch: int
    """Micro-batch; of an overlapped pair, that of its forward pass."""
    backward_stage: int = -1
    """Stage of the backward pass of an overlapped pair."""
    backward_micro_batch: int = -1
    """Micro-batch of the backward pass of an overlapped pair."""

    def parts(self) -> "tuple[PipelineOp, ...]":
        """Return the passes of an overlapped pair, or the op itself."""
        if self.kind != "FB":
            return (self,)
        return (
            PipelineOp("F", self.stage, self.micro_batch),
            PipelineOp("B", self.backward_stage, self.backward_micro_batch),
        )

    def __str__(self) -> str:
        """Return the op in the notation of PyTorch's schedule files."""
        if self.kind == "FB":
            return f"({';'.join(map(str, self.parts()))})OVERLAP_F_B"
        return f"{self.stage}{self.kind}{self.micro_batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule:
    """The ops of each rank in order."""

    name: str
    """Name of the schedule or of its file."""
    ranks: tuple[tuple[PipelineOp, ...], ...]
    """Ops of each rank."""

    def __hash__(self) -> int:
        """Return a hash that does not visit every op, so that schedules are cheap keys."""
        return hash((self.name, tuple(map(len, self.ranks))))

    @property
    def rank_count(self) -> int:
        """Ranks of the pipeline."""
        return len(self.ranks)

    @property
    def op_count(self) -> int:
        """Ops of all ranks; an overlapped pair is one."""
        return sum(map(len, self.ranks))

    @property
    def stage_count(self) -> int:
        """Stages of the model."""
        return 1 + max((part.stage for ops in self.ranks for op in ops for part in op.parts()), default=-1)

    @property
    def micro_batch_count(self) -> int:
        """Micro-batches of a step."""
        return 1 + max((part.micro_batch for ops in self.ranks for op in ops for part in op.parts()), default=-1)
