"""A rank program: the kernels and collectives of one rank of a parallel job, by pass."""

from collections.abc import Iterator
from dataclasses import dataclass

from nearpeak.core.work.case import Case

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
PASSES = ("forward", "backward", "weight", "optimizer")
"""Passes of a step: `backward` gives gradients of inputs, `weight` those of weights."""
RECOMPUTED = "recomputed."
"""Beginning of the names of calls of the forward pass that run once more in the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One collective over the group of a mesh dimension."""

    kind: str
    """One of COLLECTIVES."""
    bytes: int
    """Size of the whole message: the full tensor of a reduction, the gathered result of a gather, what one rank holds
    before an exchange, what one rank sends."""
    dim: str
    """Mesh dimension: `tp`, `cp`, `ep`, `dp` (replicas, dp × cp ranks), `edp` (replicas of an expert) or `pp`; under
    hsdp `dp_shard` and `dp_replica` for replicas that share parameters and for those that hold the same."""
    copy_count: int = 1
    """Copies of a row in an exchange of which those for one node cross the network together: a token's experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCall:
    """One call of a rank: a kernel (`case`) or a collective (`transfer`)."""

    name: str
    """Part of the model, `attention.qkv`."""
    case: Case | None = None
    """The kernel's case."""
    transfer: Transfer | None = None
    """The collective."""
    count: int = 1
    """Equal calls in a row."""
    is_beside: bool = False
    """Whether the framework runs the collective beside the device's queue, so that kernels may hide it."""
    kernel_count: int = 1
    """Kernels that the host launches for one call."""
    is_dynamic: bool = False
    """Whether its extents are data that the host reads first (rows of experts), so that no CUDA graph holds it."""
    is_read: bool = False
    """Whether the host waits for its result before it launches what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """One micro-batch of one stage chunk on one rank, and the end of its step."""

    stage: int
    """Pipeline stage."""
    chunk: int
    """Model chunk of the stage."""
    layer_count: int
    """Transformer layers of the chunk."""
    forward: tuple[RankCall, ...]
    """Forward pass of a micro-batch."""
    backward: tuple[RankCall, ...]
    """Gradients of the inputs of a micro-batch."""
    weight: tuple[RankCall, ...]
    """Gradients of the weights of a micro-batch."""
    recomputed: tuple[RankCall, ...] = ()
    """Forward calls that run once more before the backward pass."""
    gradient: tuple[RankCall, ...] = ()
    """Reduction of the gradients, once a step, in the order in which they become ready."""
    optimizer: tuple[RankCall, ...] = ()
    """The optimizer's calls, once a step."""
    parameter_count: int
    """Parameters that the rank holds when nothing is sharded over replicas, experts left out."""
    expert_parameter_count: int = 0
    """Parameters of experts that the rank holds."""

    def micro_batch_calls(self) -> Iterator[RankCall]:
        """Yield the calls of one micro-batch: forward, recomputed, backward, weight."""
        yield from self.forward
        yield from self.recomputed
        yield from self.backward
        yield from self.weight
