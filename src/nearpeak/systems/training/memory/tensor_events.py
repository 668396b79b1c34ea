"""Allocations and frees of a rank over one training step, in the order in which its schedule runs."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div
from nearpeak.systems.training.memory.caching_allocator import AllocatorPeaks, Event, allocator_peaks
from nearpeak.systems.training.memory.framework_rules import MemoryRules
from nearpeak.systems.training.memory.layer_parameters import vocabulary_rows
from nearpeak.systems.training.memory.memory_places import RankParameters, expert_load_ratio, is_fully_sharded
from nearpeak.systems.training.memory.recomputation import kept_names
from nearpeak.systems.training.memory.saved_tensors import ActivationRules, TokenAxes, layer_input, layer_steps
from nearpeak.systems.training.memory.stage_layers import StageLayers, rank_chunks
from nearpeak.systems.training.memory.tensor_lifetimes import LayerStep

_STEADY_COUNT = 3
"""Micro-batches after the warm-up in which the allocator's reuse settles."""
_PASS_COUNT = 800
"""Layers times micro-batches in flight that are followed at most; reuse has settled long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvents:
    """What a rank allocates in a step."""

    shape: TransformerShape
    """Extents of the model."""
    plan: TrainingPlan
    """Plan of the step."""
    stage: StageLayers
    """Layers of the pipeline stage."""
    rules: MemoryRules
    """What the framework keeps per parameter."""
    activations: ActivationRules
    """What the framework's operators save."""
    parameters: RankParameters
    """Parameters of the rank before sharding."""
    static: Mapping[str, int]
    """Bytes that stay for the whole run, by kind."""
    optimizer_bytes: int = 0
    """What the optimizer's step needs for a moment, in one piece."""

    def events(self, ops: Sequence[PipelineOp]) -> Iterator[Event]:
        """Yield the events of a step with the passes of `ops`."""
        for kind, size in self.static.items():
            yield from self._pieces(kind, size)
        for op in ops:
            for part in op.parts():
                if part.kind == "F":
                    yield from self._forward(part)
                elif part.kind in ("B", "I"):
                    yield from self._backward(part)
        if self.optimizer_bytes:
            yield ("optimizer", "transient"), self.optimizer_bytes

    def _pieces(self, kind: str, size: int) -> Iterator[Event]:
        """Yield one allocation per layer of what frameworks allocate by parameter, one of what they keep flat."""
        count = self.stage.layer_count if kind == "weights" else 1
        for piece in range(max(count, 1)):
            if size // max(count, 1):
                yield (kind, piece), size // max(count, 1)

    @property
    def axes(self) -> TokenAxes:
        """Extents of one micro-batch."""
        plan = self.plan
        return TokenAxes(
            token_count=ceil_div(plan.micro_batch * plan.sequence, plan.cp), key_count=plan.sequence, tp=plan.tp,
            is_sequence_parallel=plan.sequence_parallel, etp=plan.etp,
            expert_load=expert_load_ratio(self.shape, plan),
        )  # fmt: skip

    def _chunk(self, op: PipelineOp) -> tuple[int, range, bool]:
        """Return the chunk of a pass on its rank, its layers, and whether the output head follows them."""
        chunks = rank_chunks(self.plan)
        chunk = op.stage // self.plan.pp if chunks > 1 else 0
        count = self.stage.layer_count
        layers = range(chunk * count // chunks, (chunk + 1) * count // chunks)
        return chunk, layers, bool(self.stage.is_last) and chunk == chunks - 1

    def _steps(self, layer: int) -> list[LayerStep]:
        has_experts = self.shape.has_experts(self.stage.first_layer + layer)
        return layer_steps(self.shape, self.axes, self.activations, has_experts=has_experts)

    def _forward(self, op: PipelineOp) -> Iterator[Event]:
        _, layers, has_head = self._chunk(op)
        size = layer_input(self.shape, self.axes, self.activations).size_bytes
        for layer in layers:
            key = (op.micro_batch, op.stage, layer)
            yield (*key, "x"), size
            yield from self._gather(key)
            steps = self._steps(layer)
            yield from forward_events(key, steps, kept_names(self.plan, steps))
            yield from self._release(key)
        if has_head:
            yield from self._loss(op, size)

    def _loss(self, op: PipelineOp, size: int) -> Iterator[Event]:
        """Yield the head and the loss, whose gradient follows at once."""
        key, loss, plan = (op.micro_batch, op.stage, "head"), self.rules.loss, self.plan
        rows = vocabulary_rows(self.shape, tp=plan.tp if loss.is_split else 1, padding=self.rules.vocabulary_padding)
        logits = self.axes.token_count * rows
        yield (*key, "x"), size
        yield (*key, "normed"), size
        yield (*key, "logits"), 2 * logits
        yield (*key, "wide"), max(loss.forward_bytes - 2, 0) * logits or 2 * logits
        yield (*key, "logits"), 0
        yield (*key, "gradient"), 2 * logits
        yield (*key, "wide"), 0
        yield (*key, "normed gradient"), size
        for name in ("gradient", "normed", "normed gradient", "x"):
            yield (*key, name), 0

    def _backward(self, op: PipelineOp) -> Iterator[Event]:
        _, layers, _ = self._chunk(op)
        size = layer_input(self.shape, self.axes, self.activations).size_bytes
        last = (op.micro_batch, op.stage, "gradient")
        yield last, size
        for layer in reversed(layers):
            key = (op.micro_batch, op.stage, layer)
            yield from self._gather(key)
            steps = self._steps(layer)
            yield from backward_events(key, steps, kept_names(self.plan, steps))
            yield from self._release(key)
            yield (*key, "x"), 0
        yield last, 0

    def _gather(self, key: tuple[Hashable, ...]) -> Iterator[Event]:
        if is_fully_sharded(self.plan):
            size = self.parameters.layer * self.rules.gathered_bytes
            yield (*key, "gather"), size
            yield (*key, "weights"), size
            yield (*key, "gather"), 0

    def _release(self, key: tuple[Hashable, ...]) -> Iterator[Event]:
        if is_fully_sharded(self.plan):
            yield (*key, "weights"), 0


def forward_events(key: tuple[Hashable, ...], steps: Sequence[LayerStep], saved: frozenset[str]) -> Iterator[Event]:
    """Yield the events of a layer's forward pass; its input is there and its output is the next layer's.

    Args:
        saved: names of the tensors that stay.
    """
    last_read = {name: place for place, step in enumerate(steps) for name in step.reads}
    alive: set[str] = set()
    for place, step in enumerate(steps):
        for tensor in step.makes:
            if tensor.name in last_read or tensor.name in saved:
                yield (*key, tensor.name), tensor.size_bytes
                alive.add(tensor.name)
        if step.workspace_bytes:
            yield (*key, "workspace"), step.workspace_bytes
            yield (*key, "workspace"), 0
        for name in sorted(alive - saved):
            if last_read.get(name, -1) <= place:
                yield (*key, name), 0
                alive.discard(name)


def backward_events(key: tuple[Hashable, ...], steps: Sequence[LayerStep], saved: frozenset[str]) -> Iterator[Event]:
    """Yield the events of a layer's backward pass; the gradient of the residual stream is there throughout.

    Args:
        saved: names of the tensors that the forward pass has left; others that are needed are computed once more.
    """
    for step in steps:
        for tensor in step.makes:
            if tensor.name not in saved and any(tensor.name in other.saves for other in steps):
                yield (*key, tensor.name), tensor.size_bytes
    first_save = {name: place for place, step in reversed(list(enumerate(steps))) for name in step.saves}
    tensors = {tensor.name: tensor for step in steps for tensor in step.makes}
    makers = {tensor.name: place for place, step in enumerate(steps) for tensor in step.makes}
    gradients: set[str] = set()
    for place, step in reversed(list(enumerate(steps))):
        for name in step.reads:
            if name in tensors and tensors[name].gradient == "own" and name not in gradients:
                yield (*key, "gradient", name), tensors[name].size_bytes
                gradients.add(name)
        if step.backward_workspace_bytes:
            yield (*key, "workspace"), step.backward_workspace_bytes
            yield (*key, "workspace"), 0
        for name in sorted(gradients):
            if makers[name] >= place:
                yield (*key, "gradient", name), 0
                gradients.discard(name)
        for name, first in first_save.items():
            if first == place and name != "x":
                yield (*key, name), 0
    for name in sorted(saved - first_save.keys() - {"x"}):
        yield (*key, name), 0


def step_peaks(events: RankEvents, ops: Sequence[PipelineOp], in_flight: int, *, is_expandable: bool) -> AllocatorPeaks:
    """Return the allocator's peaks over the warm-up and a few more micro-batches.

    Args:
        ops: passes of the rank in order.
        in_flight: micro-batches that the rank holds at once.
    """
    most = max(_PASS_COUNT // max(events.stage.layer_count, 1), 1)
    last = min(in_flight, most) + _STEADY_COUNT
    parts = [part for op in ops for part in op.parts()]
    batches = dict.fromkeys(part.micro_batch for part in parts if part.kind == "F")  # two streams may enter
    sampled_batches = set(list(batches)[:last])
    sampled = [part for part in parts if part.micro_batch in sampled_batches]
    rounded = ((key, round(size)) for key, size in events.events(sampled))
    return allocator_peaks(rounded, is_expandable=is_expandable)
