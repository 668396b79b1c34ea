"""Layout of a transformer's layers over ranks: degrees, number formats, fused kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.errors import SpecError

FUSIONS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "eager": frozenset({"attention", "grouped"}),
    "megatron-deepspeed": frozenset({"norm", "softmax", "activation", "residual", "qkv", "gate_up"}),
    "megatron-lm": frozenset(
        {"norm", "attention", "activation", "residual", "rotary", "qkv", "gate_up", "accumulate", "experts"}
    ),
    "megatron-deepep": frozenset(
        {
            "norm", "attention", "activation", "residual", "rotary", "qkv", "gate_up", "accumulate", "experts",
            "dispatch",
        }
    ),
    "compiled": frozenset({"norm", "attention", "activation", "residual", "rotary", "loss", "experts", "grouped"}),
    "serving": frozenset(
        {
            "norm", "attention", "activation", "residual_norm", "rotary", "rotary_qk", "qkv", "gate_up", "experts",
            "grouped",
        }
    ),
}  # fmt: skip
"""Sets of fusions by software stack.

`norm`: one kernel per norm; `softmax`: scale, mask and softmax in one; `attention`: flash attention; `activation`: bias
and activation, or gate and activation; `residual`: bias, dropout and residual; `residual_norm`: the residual is added
inside the next norm; `rotary`: one kernel for queries and one for keys; `rotary_qk`: one for both; `qkv`, `gate_up`:
one product; `accumulate`: weight gradients are added to fp32 inside their product; `loss`: cross entropy in one kernel
over tensor-parallel ranks; `experts`: routing and permutation in few kernels; `dispatch`: rows for several
experts of a node cross the network once; `grouped`: one kernel for the products of all experts, not one each.
"""
CONTEXT_KINDS = ("ring", "all_to_all", "all_gather")
EXCHANGES = ("all_to_all", "all_reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """Number formats of one layer's tensors; an empty scheme means plain products in the format of activations."""

    activation: str = "bf16"
    """Activations, and weights without a scheme."""
    attention: str = ""
    """Scheme of the projections of attention, one of nearpeak's (fp8_tensor, fp8_block, nvfp4, int4_weight_only)."""
    ffn: str = ""
    """Scheme of dense feed-forward products."""
    expert: str = ""
    """Scheme of the products of experts."""
    head: str = ""
    """Scheme of the output head."""
    cache: str = ""
    """Format of the key-value cache; empty for that of activations."""
    gradient: str = ""
    """Format in which weight gradients are accumulated over micro-batches; empty where they are not."""
    scaling: str = "current"
    """Scales of quantised activations: `current`, `delayed` or `given`."""
    is_transposed: bool = False
    """Whether quantised tensors keep a transposed copy for the products of the gradients (Hopper's fp8)."""

    def __post_init__(self) -> None:
        """Refuse schemes that do not exist."""
        for name in ("attention", "ffn", "expert", "head"):
            scheme = getattr(self, name)
            if scheme and scheme not in SCHEMES:
                raise SpecError(f"formats: {name}={scheme!r} is not one of {', '.join(SCHEMES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Low-rank adapters, which alone are trained."""

    rank: int
    """Width of the adapters."""
    targets: tuple[str, ...] = (
        "attention.qkv", "attention.queries", "attention.keys", "attention.values", "attention.output",
    )  # fmt: skip
    """Projections that have one, by the name of their calls."""
    has_dropout: bool = False
    """Whether their inputs drop elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the kernels of a layer are split over ranks and fused.

    >>> Layout(tp=8, sequence_parallel=True).tp
    8
    """

    tp: int = 1
    """Tensor-parallel degree."""
    cp: int = 1
    """Context-parallel degree."""
    cp_kind: str = "ring"
    """One of CONTEXT_KINDS."""
    ep: int = 1
    """Expert-parallel degree."""
    etp: int = 1
    """Tensor-parallel degree inside an expert."""
    exchange: str = "all_to_all"
    """How tokens reach their experts: sent to their ranks, or present on all of them and summed (`all_reduce`)."""
    expert_load: str = "balanced"
    """Rows of experts: `balanced`, or a load of grouped_gemm without its top_k, `uniform seed=0`."""
    sequence_parallel: bool = False
    """Whether norms and residuals are split by sequence over the tensor-parallel ranks."""
    gathers_again: bool = True
    """Whether the backward pass gathers inputs once more instead of keeping them (Megatron-LM)."""
    copies_sequences: bool = False
    """Whether collectives along the sequence copy what they gather or scatter: batches lie outside sequences (DTensor),
    not inside (Megatron-LM)."""
    reduces_each_projection: bool = False
    """Whether each of several projections of one input reduces its gradient of it (DTensor's ColwiseParallel alone)."""
    splits_vocabulary: bool = True
    """Whether embedding and output head are split by vocabulary over the tensor-parallel ranks."""
    has_dropout: bool = False
    """Whether hidden states and attention drop elements."""
    vocabulary_multiple: int = 1
    """The vocabulary is padded to a multiple of this times tp (Megatron-LM: 128)."""
    formats: Formats = field(default_factory=Formats)
    """Number formats."""
    adapters: Adapters | None = None
    """Adapters beside frozen weights; none where all weights are trained."""
    fusions: frozenset[str] = FUSIONS["megatron-lm"]
    """Fused kernels, a value of FUSIONS or any set of its names."""

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist and degrees below 1."""
        for name, allowed in (("cp_kind", CONTEXT_KINDS), ("exchange", EXCHANGES)):
            if getattr(self, name) not in allowed:
                raise SpecError(f"layout: {name}={getattr(self, name)!r} is not one of {', '.join(allowed)}")
        for name in ("tp", "cp", "ep", "etp", "vocabulary_multiple"):
            if getattr(self, name) < 1:
                raise SpecError(f"layout: {name}={getattr(self, name)} must be at least 1")
        if self.sequence_parallel and not self.splits_vocabulary:
            raise SpecError("layout: sequence_parallel needs splits_vocabulary, whose reductions scatter the sequence")
        known = frozenset().union(*FUSIONS.values())
        if self.fusions - known:
            raise SpecError(f"layout: fusion {min(self.fusions - known)!r} is not one of {', '.join(sorted(known))}")

    def fused(self, name: str) -> bool:
        """Return whether a group of kernels is fused."""
        return name in self.fusions

    @property
    def vocabulary_ranks(self) -> int:
        """Ranks over which the vocabulary is split."""
        return self.tp if self.splits_vocabulary else 1

    @property
    def sends_tokens(self) -> bool:
        """Whether tokens are sent to the ranks of their experts: each rank then routes tokens that no other has."""
        return self.exchange == "all_to_all" and (self.sequence_parallel or self.tp == 1)

    @property
    def split_rows(self) -> int:
        """Ranks over which rows of norms and residuals are split."""
        return self.tp if self.sequence_parallel else 1


def training_formats(precision: str) -> Formats:
    """Return the formats of a training recipe (a value of PRECISIONS), as Megatron-LM's `--fp8-recipe` has them.

    Attention itself, the output head and the router stay in bf16.

    Source: NVIDIA Transformer Engine, user guide, "Using FP8 and FP4"; fp8-row is `Float8LinearRecipeName.ROWWISE` of
    torchao; tf32 products are those of fp32 operands.

    >>> training_formats("fp8-delayed").ffn, training_formats("bf16").ffn
    ('fp8_tensor', '')
    """
    schemes = {
        "fp8-delayed": "fp8_tensor", "fp8-current": "fp8_tensor", "fp8-row": "fp8_row", "fp8-block": "fp8_block",
        "mxfp8": "mxfp8", "nvfp4": "nvfp4",
    }  # fmt: skip
    if precision in ("fp32", "tf32"):
        return Formats(activation="fp32", gradient="fp32")
    scheme = schemes.get(precision, "")
    return Formats(
        activation="fp16" if precision == "fp16" else "bf16", attention=scheme, ffn=scheme, expert=scheme,
        gradient="fp32", scaling="delayed" if precision == "fp8-delayed" else "current", is_transposed=bool(scheme),
    )  # fmt: skip


def padded_vocabulary(shape: TransformerShape, layout: Layout) -> int:
    """Return the rows of the embedding on all ranks that split it together."""
    multiple = layout.vocabulary_multiple * layout.vocabulary_ranks
    return -(-shape.vocabulary // multiple) * multiple


def validated(shape: TransformerShape, layout: Layout) -> Layout:
    """Return a layout whose degrees divide the shape, after a check.

    Raises:
        SpecError: a degree does not divide; the message names the nearest that does.
    """
    _check_degree(shape, "tp", layout.tp, {"heads": shape.head_count, "hidden": shape.hidden})
    if max(shape.kv_head_count, layout.tp) % min(shape.kv_head_count, layout.tp):
        _check_degree(shape, "tp", layout.tp, {"key heads": shape.kv_head_count})
    if shape.dense_layer_count:
        _check_degree(shape, "tp", layout.tp, {"feed-forward width": shape.ffn})
    if shape.experts:
        _check_degree(shape, "ep", layout.ep, {"experts": shape.experts.count})
        _check_degree(shape, "etp", layout.etp, {"expert width": shape.experts.width})
        if shape.experts.shared_width:
            _check_degree(shape, "tp", layout.tp, {"shared experts' width": shape.experts.shared_width})
        if not layout.sends_tokens and layout.ep * layout.etp > layout.tp and layout.exchange == "all_to_all":
            raise SpecError(
                f"{shape.name}: ep={layout.ep} × etp={layout.etp} with tp={layout.tp} sends tokens that "
                "tensor-parallel ranks hold in common; sp (sequence parallelism) would split them"
            )
    elif layout.ep > 1:
        raise SpecError(f"{shape.name}: ep={layout.ep}, but it has no experts; ep=1 would work")
    if layout.cp_kind == "all_to_all":
        _check_degree(shape, "cp", layout.cp * layout.tp, {"heads": shape.head_count})
    return layout


def nearest_divisor(degree: int, fits: Callable[[int], bool]) -> int:
    """Return the degree nearest to a given one that fits, the smaller of two equally near ones.

    >>> nearest_divisor(6, lambda degree: 32 % degree == 0)
    4
    """
    return min((d for d in range(1, 2 * degree + 1) if fits(d)), key=lambda d: (abs(d - degree), d))


def _check_degree(shape: TransformerShape, name: str, degree: int, extents: Mapping[str, int]) -> None:
    for what, extent in extents.items():
        if extent % degree:
            near = nearest_divisor(degree, lambda d: all(size % d == 0 for size in extents.values()))
            raise SpecError(f"{shape.name}: {name}={degree} does not divide {extent} {what}; {name}={near} would")
