"""Lifetimes of the tensors of a layer: what the backward pass keeps, and the peaks of both passes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.ops.shared.definition.array_arithmetic import maximum

RESIDUAL = "residual"
"""Gradient of a branch that is the gradient of the residual stream itself: no memory of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTensor:
    """One tensor that a step makes."""

    name: str
    """Name inside the layer."""
    size_bytes: int
    """Its size."""
    gradient: str = "own"
    """`own`, `residual` (the gradient of the residual stream) or `none` (masks, statistics)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStep:
    """One operator of a layer: what it reads, makes and keeps for its backward pass."""

    name: str
    """Operator, `attention.qkv`."""
    reads: tuple[str, ...]
    """Tensors that it reads."""
    makes: tuple[LayerTensor, ...]
    """Tensors that it makes."""
    saves: tuple[str, ...] = ()
    """Tensors that its backward pass needs."""
    workspace_bytes: int = 0
    """Memory that it needs while it runs forward (gathered inputs)."""
    backward_workspace_bytes: int = 0
    """The same in its backward pass."""
    parameter_count: int = 0
    """Parameters whose gradients its backward pass makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """What one layer keeps and needs, for one micro-batch."""

    saved_bytes: int
    """Kept from the forward to the backward pass."""
    input_bytes: int
    """The layer's input, which is all that full recomputation keeps."""
    forward_bytes: int
    """Peak of the forward pass, what it has saved included."""
    backward_bytes: int
    """Peak of the backward pass, what is still saved included."""
    saved: Mapping[str, int] = field(default_factory=dict)
    """Kept tensors by name, in bytes."""


def layer_memory(
    steps: Iterable[LayerStep], layer_input: LayerTensor, parameter_gradient_bytes: float = 0
) -> LayerMemory:
    """Return what a layer keeps and its peaks, by going over its steps forward and back.

    Sizes may be NumPy columns: the order of steps does not depend on them.

    A tensor lives from the step that makes it to its last reader, or until the backward pass of the first step that
    saves it. A gradient lives from the backward pass of the tensor's last reader to that of its maker; gradients of
    residual branches share the residual stream's.

    Args:
        parameter_gradient_bytes: bytes per parameter of gradients that come into being during the backward pass.

    >>> x, y = LayerTensor(name="x", size_bytes=8, gradient="residual"), LayerTensor(name="y", size_bytes=4)
    >>> found = layer_memory([LayerStep(name="product", reads=("x",), makes=(y,), saves=("x",))], x)
    >>> found.saved_bytes, found.forward_bytes, found.backward_bytes
    (8, 12, 20)
    """
    order = tuple(steps)
    tensors = {layer_input.name: layer_input} | {tensor.name: tensor for step in order for tensor in step.makes}
    saved = {name for step in order for name in step.saves}
    sizes = {name: tensor.size_bytes for name, tensor in tensors.items() if name in saved}
    return LayerMemory(
        saved_bytes=sum(sizes.values()),
        input_bytes=layer_input.size_bytes,
        forward_bytes=_forward_peak(order, tensors, saved, layer_input.name),
        backward_bytes=_backward_peak(order, tensors, layer_input, parameter_gradient_bytes),
        saved=sizes,
    )


def _forward_peak(order: tuple[LayerStep, ...], tensors: Mapping[str, LayerTensor], saved: set[str], first: str) -> int:
    """Return the peak of the forward pass."""
    last_read = {name: place for place, step in enumerate(order) for name in step.reads}
    alive, peak = {first}, 0
    for place, step in enumerate(order):
        alive |= {tensor.name for tensor in step.makes}
        peak = maximum(peak, sum(tensors[name].size_bytes for name in sorted(alive)) + step.workspace_bytes)
        alive = {name for name in alive if name in saved or last_read.get(name, len(order)) > place}
    return peak


def _backward_peak(
    order: tuple[LayerStep, ...],
    tensors: Mapping[str, LayerTensor],
    layer_input: LayerTensor,
    parameter_gradient_bytes: float,
) -> int:
    """Return the peak of the backward pass; the gradient of the residual stream is alive throughout."""
    first_save = {name: place for place, step in reversed(list(enumerate(order))) for name in step.saves}
    alive = set(first_save)
    makers = {tensor.name: place for place, step in enumerate(order) for tensor in step.makes}
    gradients: set[str] = set()
    peak: int = 0
    parameters = 0
    for place, step in reversed(list(enumerate(order))):
        gradients |= {name for name in step.reads if tensors[name].gradient == "own"}
        gradients |= {tensor.name for tensor in step.makes if tensor.gradient == "own"}
        gradient_bytes = sum(tensors[name].size_bytes for name in sorted(gradients))
        alive_bytes = sum(tensors[name].size_bytes for name in sorted(alive))
        parameters = parameters + step.parameter_count
        held: Any = layer_input.size_bytes + alive_bytes + parameters * parameter_gradient_bytes
        peak = maximum(peak, held + gradient_bytes + step.backward_workspace_bytes)
        gradients = {name for name in gradients if makers.get(name, -1) < place}
        alive = {name for name in alive if first_save[name] < place}
    return peak
