"""Steps of a transformer layer with the tensors that they make and save, on one rank and for one micro-batch."""

from dataclasses import dataclass, replace
from typing import Any

from nearpeak.core.systems.transformer import Experts, LatentAttention, TransformerShape
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum
from nearpeak.systems.training.memory.tensor_lifetimes import RESIDUAL, LayerStep, LayerTensor

FP32_BYTES = 4
COMPOSED_NORM_BYTES = 14
"""Bytes per element that the backward pass of a norm composed of pointwise operators needs beside the upstream
gradient: three fp32 tensors and a cast, while one of the kept ones is freed (PyTorch 2.13, rms_norm without a fused
kernel)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRules:
    """What a framework's operators save: which are fused and in which formats."""

    element_bytes: int = 2
    """Bytes of an activation; 4 in fp32 and tf32."""
    residual_bytes: int = 2
    """Bytes of an element of the residual stream; 4 under autocast, which norms in fp32."""
    product_input_bytes: float = 2
    """Bytes in which products keep their input for the gradient of their weight; about 1 under FP8."""
    is_attention_fused: bool = True
    """FlashAttention: statistics instead of scores."""
    is_norm_fused: bool = True
    """A norm keeps its input and statistics; composed of pointwise operators it keeps two fp32 tensors instead."""
    has_joint_gate: bool = True
    """One product for gate and value."""
    is_gate_fused: bool = True
    """One kernel for gate and activation, which keeps only its input."""
    keeps_gathered: bool = False
    """Whether sequence parallelism keeps the gathered input of a product instead of gathering it once more, and
    collectives write to tensors of their own (DTensor)."""
    has_cast_copies: bool = False
    """Whether each product casts its input for itself, as autocast does, so that queries, keys and values keep three
    copies of one tensor and a separate gate keeps a second."""
    inner_bytes: float = 0
    """Bytes in which the input of a fused activation is kept; 0 for those of an activation."""
    is_frozen: bool = False
    """Whether weights are frozen but for adapters on attention's projections: other products keep no input."""
    has_dropout: bool = False
    """Dropout after attention, projections and the feed-forward part; masks take one byte per element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAxes:
    """Extents of one micro-batch on one rank; NumPy columns where many plans are asked at once."""

    token_count: int
    """Tokens of the micro-batch that the rank's products see, context parallelism taken off."""
    key_count: int
    """Positions that each token attends to, for materialised scores."""
    tp: int
    """Tensor-parallel degree."""
    is_sequence_parallel: bool
    """Whether norms and residuals are split over the tensor-parallel ranks."""
    etp: int = 1
    """Tensor-parallel degree inside experts."""
    expert_load: float = 1.0
    """Tokens of the fullest rank's experts over the mean."""

    @property
    def residual_tokens(self) -> int:
        """Tokens of the residual stream on the rank."""
        return ceil_div(self.token_count, self.tp) if self.is_sequence_parallel else self.token_count


def layer_input(shape: TransformerShape, axes: TokenAxes, rules: ActivationRules) -> LayerTensor:
    """Return the tensor that enters a layer."""
    return LayerTensor(
        name="x", size_bytes=axes.residual_tokens * shape.hidden * rules.residual_bytes, gradient=RESIDUAL
    )


def layer_steps(
    shape: TransformerShape, axes: TokenAxes, rules: ActivationRules, *, has_experts: bool
) -> list[LayerStep]:
    """Return the steps of one layer, attention first.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4 (GPT); Dao 2023, arXiv:2307.08691 (statistics of
    attention); DeepSeek-V2, arXiv:2405.04434 (latent attention); operators of Megatron Core and Transformer Engine.
    """
    builder = _LayerBuilder(shape=shape, axes=axes, rules=rules)
    steps = builder.norm("x", "attention_norm")
    steps += builder.latent(shape.latent) if shape.latent else builder.heads()
    steps += builder.core_attention()
    steps += builder.output("attention.output", "o", builder.value_width, "x", "x2")
    if not shape.is_parallel:
        steps += builder.norm("x2", "ffn_norm")
    elif shape.norm_count > 1:
        steps += builder.norm("x", "ffn_norm")
    if has_experts and shape.experts:
        steps += builder.experts(shape.experts)
    else:
        steps += builder.feed_forward("ffn", shape.ffn)
        steps += builder.output("ffn.down", "ffn.inner", shape.ffn, "x2", "y")
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayerBuilder:
    """Steps of the parts of a layer; sizes are of one rank."""

    shape: TransformerShape
    """Extents of the model."""
    axes: TokenAxes
    """Extents of one micro-batch."""
    rules: ActivationRules
    """What the framework's operators save."""

    @property
    def ffn_input(self) -> str:
        """Name of the normed tensor that the feed-forward part reads: attention's in parallel blocks of one norm."""
        return "attention_norm" if self.shape.is_parallel and self.shape.norm_count == 1 else "ffn_norm"

    @property
    def key_width(self) -> int:
        """Width of one head of queries and keys."""
        latent = self.shape.latent
        return latent.key_width + latent.rotary_width if latent else self.shape.head_width

    @property
    def value_width(self) -> int:
        """Width of all value heads together, before they are split."""
        latent = self.shape.latent
        return self.shape.head_count * (latent.value_width if latent else self.shape.head_width)

    def tensor(self, name: str, elements: Any, element_bytes: float = 0, gradient: str = "own") -> LayerTensor:
        """Return a tensor of so many elements."""
        size = elements * (element_bytes or self.rules.element_bytes)
        return LayerTensor(name=name, size_bytes=size, gradient=gradient)

    def norm(self, source: str, name: str) -> list[LayerStep]:
        """Return a norm of the residual stream."""
        tokens, hidden = self.axes.residual_tokens, self.shape.hidden
        figures = 2 if self.shape.norm == "layer_norm" else 1
        statistics = self.tensor(f"{name}.statistics", tokens * figures, FP32_BYTES, "none")
        wide = [self.tensor(f"{name}.{part}", tokens * hidden, FP32_BYTES, "none") for part in ("fp32", "scaled")]
        is_fused = self.rules.is_norm_fused or self.shape.norm == "layer_norm"
        saved = (source,) if is_fused else tuple(tensor.name for tensor in wide)
        made = (self.tensor(name, tokens * hidden), statistics, *(() if is_fused else wide))
        gradient_bytes = tokens * hidden * (self.rules.residual_bytes if is_fused else COMPOSED_NORM_BYTES)
        return [
            LayerStep(
                name=name, reads=(source,), makes=made, saves=(*saved, statistics.name),
                backward_workspace_bytes=gradient_bytes, parameter_count=hidden * figures,
            )
        ]  # fmt: skip

    def product(
        self, name: str, source: str, width: int, makes: tuple[LayerTensor, ...], columns: int = 0
    ) -> LayerStep:
        """Return a product that reads a tensor of the residual tokens: gathered first under sequence parallelism.

        Args:
            columns: width of its output on the rank, where its weight's gradient counts.
        """
        gathered = self.gathered_bytes(width)
        outputs: tuple[LayerTensor, ...] = makes
        saves: tuple[str, ...] = (source,)
        if self.rules.keeps_gathered and self.axes.is_sequence_parallel:
            whole = self.tensor(f"{source}.gathered", self.axes.token_count * width, gradient="none")
            outputs, saves, gathered = (*makes, whole), (whole.name,), 0
        if self.rules.product_input_bytes < self.rules.element_bytes:
            narrow = self.tensor(
                f"{source}.narrow", self.axes.residual_tokens * width, self.rules.product_input_bytes, "none"
            )
            outputs, saves = (*makes, narrow), (narrow.name,)
        if self.rules.is_frozen:
            outputs, saves = makes, (source,) if name == "attention.qkv" else ()
        return LayerStep(
            name=name, reads=(source,), makes=outputs, saves=saves,
            workspace_bytes=gathered, backward_workspace_bytes=self.gathered_bytes(width),
            parameter_count=width * columns,
        )  # fmt: skip

    def gathered_bytes(self, width: int) -> int:
        """Return the bytes of a tensor that a tensor-parallel collective gathers or sums; 0 where it is in place."""
        if not self.axes.is_sequence_parallel and not self.rules.keeps_gathered:
            return 0
        return self.axes.token_count * width * self.rules.element_bytes * (self.axes.tp > 1)

    def heads(self) -> list[LayerStep]:
        """Return the product that gives queries, keys and values."""
        shape, tokens = self.shape, self.axes.token_count
        keys = maximum(shape.kv_head_count // self.axes.tp, 1) * shape.head_width
        made = (
            self.tensor("q", tokens * shape.head_count * shape.head_width // self.axes.tp),
            self.tensor("k", tokens * keys),
            self.tensor("v", tokens * keys),
        )
        columns = shape.head_count * shape.head_width // self.axes.tp + 2 * keys
        if self.rules.has_cast_copies:
            copies = self.tensor("attention_norm.copies", 2 * self.axes.residual_tokens * shape.hidden, gradient="none")
            step = self.product("attention.qkv", "attention_norm", shape.hidden, (*made, copies), columns)
            return [replace(step, saves=(*step.saves, copies.name))]
        return [self.product("attention.qkv", "attention_norm", shape.hidden, made, columns)]

    def latent(self, latent: LatentAttention) -> list[LayerStep]:
        """Return the products of latent attention: compressed, normed, expanded, assembled."""
        hidden, tokens, short = self.shape.hidden, self.axes.token_count, self.axes.residual_tokens
        heads = self.shape.head_count // self.axes.tp
        statistics = self.tensor("latent.statistics", short * 2, FP32_BYTES, "none")
        cache = self.tensor("latent.cache", short * (latent.cache_rank + latent.rotary_width))
        cache_normed = self.tensor("latent.cache_normed", short * latent.cache_rank)
        steps = [self.product("attention.cache_down", "attention_norm", hidden, (cache,))]
        queries = self.tensor("latent.q", tokens * heads * self.key_width)
        if latent.query_rank:
            down = self.tensor("latent.query", short * latent.query_rank)
            normed = self.tensor("latent.query_normed", short * latent.query_rank)
            steps += [
                self.product("attention.query_down", "attention_norm", hidden, (down,)),
                LayerStep(name="attention.query_norm", reads=(down.name,), makes=(normed,), saves=(down.name,)),
                self.product("attention.query_up", "latent.query_normed", latent.query_rank, (queries,)),
            ]
        else:
            steps += [self.product("attention.query", "attention_norm", hidden, (queries,))]
        expanded = self.tensor("latent.kv", tokens * heads * (latent.key_width + latent.value_width))
        q, k = (self.tensor(name, tokens * heads * self.key_width) for name in ("q", "k"))
        v = self.tensor("v", tokens * heads * latent.value_width)
        return [
            *steps,
            LayerStep(
                name="attention.cache_norm", reads=("latent.cache",), makes=(cache_normed, statistics),
                saves=("latent.cache", statistics.name),
            ),
            self.product("attention.cache_up", "latent.cache_normed", latent.cache_rank, (expanded,)),
            LayerStep(name="attention.assemble", reads=("latent.q", "latent.kv"), makes=(q, k, v)),
        ]  # fmt: skip

    def core_attention(self) -> list[LayerStep]:
        """Return the scaled products and softmax between queries, keys and values."""
        tokens, heads = self.axes.token_count, self.shape.head_count // self.axes.tp
        out = self.tensor("o", tokens * self.value_width // self.axes.tp)
        if self.rules.is_attention_fused:
            statistics = self.tensor("attention.statistics", tokens * heads, FP32_BYTES, "none")
            saved = ("q", "k", "v", "o", statistics.name)
            made = (out, statistics)
            return [LayerStep(name="attention", reads=("q", "k", "v"), makes=made, saves=saved)]
        elements = tokens * heads * self.axes.key_count
        scores, softmax = self.tensor("attention.scores", elements), self.tensor("attention.softmax", elements)
        steps = [
            LayerStep(name="attention.scores", reads=("q", "k"), makes=(scores,), saves=("q", "k")),
            LayerStep(
                name="attention.softmax", reads=("attention.scores",), makes=(softmax,), saves=("attention.softmax",)
            ),
        ]
        weights = "attention.softmax"
        if self.rules.has_dropout:
            mask = self.tensor("attention.mask", elements, 1, "none")
            dropped = self.tensor("attention.dropped", elements)
            weights = dropped.name
            steps.append(
                LayerStep(
                    name="attention.dropout", reads=("attention.softmax",), makes=(dropped, mask), saves=(mask.name,)
                )
            )
        steps.append(LayerStep(name="attention.values", reads=(weights, "v"), makes=(out,), saves=(weights, "v")))
        return steps

    def output(self, name: str, source: str, width: int, residual: str, result: str) -> list[LayerStep]:
        """Return a product over split rows and the sum of its output and the residual stream, with dropout."""
        tokens, hidden = self.axes.residual_tokens, self.shape.hidden
        branch = self.tensor(f"{name}.branch", tokens * hidden, gradient=RESIDUAL)
        saves: tuple[str, ...] = (source,)
        made: tuple[LayerTensor, ...] = (branch,)
        if self.rules.product_input_bytes < self.rules.element_bytes:
            narrow = self.tensor(
                f"{source}.narrow", self.axes.token_count * width // self.axes.tp,
                self.rules.product_input_bytes, "none",
            )  # fmt: skip
            saves, made = (narrow.name,), (branch, narrow)
        if self.shape.norm_count == 4:  # its output is normed once more before it is added
            saves = (*saves, branch.name)
        if self.rules.is_frozen:
            saves, made = (source,) if name == "attention.output" else (), (branch,)
        total = self.tensor(result, tokens * hidden, self.rules.residual_bytes, RESIDUAL)
        mask = (self.tensor(f"{name}.mask", tokens * hidden, 1, "none"),) if self.rules.has_dropout else ()
        gathered = self.gathered_bytes(hidden)
        return [
            LayerStep(
                name=name, reads=(source,), makes=made, saves=saves, workspace_bytes=gathered,
                backward_workspace_bytes=gathered, parameter_count=width // self.axes.tp * hidden,
            ),
            LayerStep(
                name=f"{name}.residual", reads=(branch.name, residual), makes=(total, *mask),
                saves=tuple(tensor.name for tensor in mask),
            ),
        ]  # fmt: skip

    def feed_forward(self, name: str, width: int) -> list[LayerStep]:
        """Return the products into a feed-forward part and its activation; its tensor is `NAME.inner`."""
        elements = self.axes.token_count * width // self.axes.tp
        inner = self.tensor(f"{name}.inner", elements)
        if self.shape.is_gated and not self.rules.has_joint_gate:
            copies: tuple[LayerTensor, ...] = ()
            if self.rules.has_cast_copies:
                elements_in = self.axes.residual_tokens * self.shape.hidden
                copies = (self.tensor(f"{name}.input_copy", elements_in, gradient="none"),)
            gate, value, active = (self.tensor(f"{name}.{part}", elements) for part in ("gate", "value", "active"))
            first = self.product(f"{name}.gate", self.ffn_input, self.shape.hidden, (gate,), width // self.axes.tp)
            second = self.product(f"{name}.value", self.ffn_input, self.shape.hidden, (value,), width // self.axes.tp)
            second = replace(
                second, makes=(*second.makes, *copies), saves=(*second.saves, *(tensor.name for tensor in copies))
            )
            if self.rules.is_gate_fused:
                pair = (gate.name, value.name)
                return [first, second, LayerStep(name=f"{name}.activation", reads=pair, makes=(inner,), saves=pair)]
            pair = (active.name, value.name)
            return [
                first,
                LayerStep(name=f"{name}.activation", reads=(gate.name,), makes=(active,), saves=(gate.name,)),
                second,
                LayerStep(name=f"{name}.gating", reads=pair, makes=(inner,), saves=pair),
            ]
        gates = 2 if self.shape.is_gated else 1
        up = self.tensor(f"{name}.up", elements * gates)
        quantised = self.tensor(f"{name}.up.kept", elements * gates, self.rules.inner_bytes, "none")
        makes, saves = ((inner, quantised), (quantised.name,)) if self.rules.inner_bytes else ((inner,), (up.name,))
        return [
            self.product(f"{name}.up", self.ffn_input, self.shape.hidden, (up,), gates * width // self.axes.tp),
            LayerStep(name=f"{name}.activation", reads=(up.name,), makes=makes, saves=saves),
        ]

    def experts(self, experts: Experts) -> list[LayerStep]:
        """Return router, dispatch, grouped products and combination of a mixture of experts.

        Scores multiply the experts' activation, as Megatron Core does, so that the output of experts is not kept.
        """
        hidden, short = self.shape.hidden, self.axes.residual_tokens
        routed = short * experts.per_token * self.axes.expert_load
        element_bytes, gates = self.rules.element_bytes, 2 if self.shape.is_gated else 1
        scores = self.tensor("router.scores", short * experts.count, 2 * FP32_BYTES + 1, "none")
        permuted = self.tensor("experts.input", routed * hidden)
        up = self.tensor("experts.up", routed * gates * experts.width // self.axes.etp)
        inner = self.tensor("experts.inner", routed * experts.width // self.axes.etp)
        out = self.tensor("experts.out", routed * hidden)
        steps = [
            LayerStep(name="router", reads=(self.ffn_input,), makes=(scores,), saves=(self.ffn_input, scores.name))
        ]
        branches = ["experts.out"]
        if experts.shared_width:
            steps += self.feed_forward("shared", experts.shared_width)
            shared = self.tensor("shared.out", short * hidden, gradient=RESIDUAL)
            steps.append(
                LayerStep(name="shared.down", reads=("shared.inner",), makes=(shared,), saves=("shared.inner",))
            )
            branches.append("shared.out")
        narrow = self.rules.product_input_bytes < element_bytes
        kept_input = self.tensor("experts.input.narrow", routed * hidden, self.rules.product_input_bytes, "none")
        kept_inner = self.tensor(
            "experts.inner.narrow", routed * experts.width // self.axes.etp, self.rules.product_input_bytes, "none"
        )
        return [
            *steps,
            LayerStep(
                name="experts.dispatch", reads=(self.ffn_input,), makes=(permuted,),
                workspace_bytes=permuted.size_bytes, backward_workspace_bytes=permuted.size_bytes,
            ),
            LayerStep(
                name="experts.up", reads=("experts.input",), makes=(up, *((kept_input,) if narrow else ())),
                saves=(kept_input.name if narrow else permuted.name,),
            ),
            LayerStep(name="experts.activation", reads=("experts.up",), makes=(inner,), saves=("experts.up",)),
            LayerStep(
                name="experts.down", reads=("experts.inner",), makes=(out, *((kept_inner,) if narrow else ())),
                saves=(kept_inner.name if narrow else inner.name,),
            ),
            LayerStep(
                name="experts.combine", reads=(*branches, "x2"),
                makes=(self.tensor("y", short * hidden, self.rules.residual_bytes, RESIDUAL),),
                workspace_bytes=out.size_bytes, backward_workspace_bytes=out.size_bytes,
            ),
        ]  # fmt: skip
