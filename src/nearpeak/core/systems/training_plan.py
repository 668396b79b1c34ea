"""A training plan: parallel degrees, batch, schedule, sharding, recomputation and precision of a training job."""

from dataclasses import dataclass

from nearpeak.core.systems.mesh import Mesh
from nearpeak.errors import SpecError

SHARDINGS = ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp")
RECOMPUTES = ("none", "selective", "full")
PRECISIONS = (
    "fp32", "tf32", "fp16", "bf16", "fp8-delayed", "fp8-current", "fp8-row", "fp8-block", "mxfp8", "nvfp4",
)  # fmt: skip
FRAMEWORKS = ("megatron-lm", "deepspeed", "fsdp2", "ddp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How one training step is laid out over ranks.

    >>> plan = TrainingPlan(tp=8, pp=2, dp=4, micro_batch=1, global_batch=64, sequence=4096)
    >>> plan.rank_count, plan.micro_batch_count
    (64, 16)
    >>> TrainingPlan(dp=3, micro_batch=1, global_batch=64, sequence=4096)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: global batch 64 is no multiple of dp 3 × micro-batch 1; 63 or 66 would be
    """

    tp: int = 1
    """Tensor-parallel degree."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Data-parallel replicas (outside context parallelism)."""
    cp: int = 1
    """Context-parallel degree: ranks that split one sequence."""
    ep: int = 1
    """Expert-parallel degree; its groups are cut out of dp × cp (and tp where etp is smaller)."""
    etp: int = 1
    """Tensor-parallel degree inside an expert."""
    expert_load: str = "balanced"
    """Rows of experts: `balanced`, or a load of grouped_gemm without its top_k (`uniform seed=0`, `zipf exponent=0.5`);
    the step is that of the rank whose experts have most."""
    chunk_count: int = 1
    """Model chunks per pipeline rank (interleaving)."""
    micro_batch: int
    """Sequences of one micro-batch."""
    global_batch: int
    """Sequences of one step over all replicas."""
    sequence: int
    """Tokens per sequence."""
    schedule: str = "1f1b"
    """Name of the pipeline schedule."""
    sharding: str = "none"
    """One of SHARDINGS."""
    shard_count: int = 0
    """Ranks of a shard group under hsdp; 0 for all of dp."""
    recompute: str = "none"
    """One of RECOMPUTES."""
    sequence_parallel: bool = False
    """Whether norms, dropout and residuals are split by sequence over the tensor-parallel ranks."""
    precision: str = "bf16"
    """One of PRECISIONS."""
    framework: str = "megatron-lm"
    """One of FRAMEWORKS: it decides memory per parameter and default buckets."""
    tp_overlap: bool = False
    """Whether tensor-parallel collectives run in chunks under the products beside them."""
    dp_overlap: bool = True
    """Whether gradients are reduced during the backward pass (and parameters gathered during the forward pass)."""
    adapter_rank: int = 0
    """Width of low-rank adapters (LoRA) of attention, which alone are trained; 0 where all weights are."""
    is_compiled: bool = False
    """Whether pointwise calls are fused (torch.compile or hand-written fused layers)."""
    stage_layer_count: tuple[int, ...] = ()
    """Layers of each pipeline stage (captured models: numbered blocks), chunk by chunk; empty for equal shares."""
    tile_row_count: int = 1
    """Parts of an image's height; cp ranks of a captured model hold rows × columns tiles of each image."""
    tile_column_count: int = 1
    """Parts of an image's width."""
    has_branches: bool = False
    """Whether the tp ranks of a captured model run branches of its graph that do not depend on each other."""

    def __post_init__(self) -> None:
        """Refuse degrees that do not divide and names that are none."""
        for name in ("tp", "pp", "dp", "cp", "ep", "etp", "chunk_count", "micro_batch", "global_batch", "sequence"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise SpecError(f"{name}={value!r}: must be a whole number of at least 1")
        for name, allowed in (
            ("sharding", SHARDINGS), ("recompute", RECOMPUTES), ("precision", PRECISIONS), ("framework", FRAMEWORKS)
        ):  # fmt: skip
            if getattr(self, name) not in allowed:
                raise SpecError(f"{name}={getattr(self, name)!r} is not one of {', '.join(allowed)}")
        each = self.dp * self.micro_batch
        if self.global_batch % each:
            below, above = self.global_batch // each * each, -(-self.global_batch // each) * each
            near = f"{below} or {above}" if below else str(above)
            raise SpecError(
                f"global batch {self.global_batch} is no multiple of dp {self.dp} × micro-batch {self.micro_batch}; "
                f"{near} would be"
            )
        self._check_parts()
        if self.shard_count and self.dp % self.shard_count:
            raise SpecError(f"shard_count {self.shard_count} does not divide dp {self.dp}; a divisor of it would")
        if (self.tp * self.cp * self.dp) % (self.ep * self.etp):
            raise SpecError(
                f"ep {self.ep} × etp {self.etp} does not divide tp × cp × dp = {self.tp * self.cp * self.dp}"
            )

    def _check_parts(self) -> None:
        """Refuse a stage split that is none of the plan's stages, and tiles that are not its ranks."""
        count = self.pp * self.chunk_count
        if self.stage_layer_count and (len(self.stage_layer_count) != count or min(self.stage_layer_count) < 1):
            counts = ":".join(map(str, self.stage_layer_count))
            raise SpecError(
                f"stages={counts}: states layers of {len(self.stage_layer_count)} stages for pp={self.pp} with "
                f"{self.chunk_count} chunk(s); {count} numbers of at least 1, one for each chunk, would be right"
            )
        tile_count = self.tile_row_count * self.tile_column_count
        if min(self.tile_row_count, self.tile_column_count) < 1 or (tile_count > 1 and tile_count != self.cp):
            raise SpecError(
                f"{self.tile_row_count} × {self.tile_column_count} tiles on cp={self.cp} ranks; their product is cp"
            )

    @property
    def rank_count(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def micro_batch_count(self) -> int:
        """Micro-batches that each replica runs in a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def mesh(self) -> Mesh:
        """Ranks in Megatron's order: tensor, context, data, pipeline."""
        return Mesh(dims=(("tp", self.tp), ("cp", self.cp), ("dp", self.dp), ("pp", self.pp)))
