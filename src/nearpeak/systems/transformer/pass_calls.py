"""Calls of a part of a layer in each pass of a step, and their composition."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from nearpeak.core.systems.rank_program import RankCall, Transfer
from nearpeak.core.work.case import Case
from nearpeak.ops import case
from nearpeak.ops.shared.definition.operator import Value
from nearpeak.systems.transformer.token_batch import Batch, ServingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCalls:
    """Calls of a part of a model by pass."""

    forward: tuple[RankCall, ...] = ()
    """Forward pass."""
    backward: tuple[RankCall, ...] = ()
    """Gradients of inputs (and of weights that the same kernel writes)."""
    weight: tuple[RankCall, ...] = ()
    """Gradients of weights."""
    step: tuple[RankCall, ...] = ()
    """Calls of the forward pass that run once a step, not once a micro-batch: weights are quantised."""


def joined(*parts: PassCalls) -> PassCalls:
    """Return parts in order: later ones run later in the forward pass and earlier in the backward pass."""
    return PassCalls(
        forward=tuple(call for part in parts for call in part.forward),
        backward=tuple(call for part in reversed(parts) for call in part.backward),
        weight=tuple(call for part in reversed(parts) for call in part.weight),
        step=tuple(call for part in parts for call in part.step),
    )


def of_batch(part: PassCalls, batch: Batch) -> PassCalls:
    """Return a part as a batch runs it: a serving step has a forward pass alone."""
    return PassCalls(forward=part.forward) if isinstance(batch, ServingBatch) else part


def dynamic(part: PassCalls) -> PassCalls:
    """Return a part whose kernels have extents that are data."""

    def marked(calls: tuple[RankCall, ...]) -> tuple[RankCall, ...]:
        return tuple(replace(call, is_dynamic=True) for call in calls)

    return PassCalls(
        forward=marked(part.forward), backward=marked(part.backward), weight=marked(part.weight), step=part.step
    )


def repeated(part: PassCalls, count: int) -> PassCalls:
    """Return a part that runs several times in a row."""
    return joined(*(part for _ in range(count)))


@cache
def _case(op: str, phase: str, arguments: tuple[tuple[str, Value], ...]) -> Case:
    return case(op, phase, **dict(arguments))


Axes = dict[str, Value]
"""Axes, formats and choices of an operator by name."""


def kernel(
    name: str, op: str, phase: str = "forward", axes: Axes | None = None, *, times: int = 1, kernel_count: int = 1,
    **arguments: Value | None,
) -> RankCall:  # fmt: skip
    """Return a call of a kernel.

    Args:
        axes: arguments of the operator; `arguments` are further ones, those that are None left out.
        times: equal calls in a row.
        kernel_count: kernels that the host launches for the call.
    """
    stated = tuple((axes or {}).items()) + tuple((key, value) for key, value in arguments.items() if value is not None)
    return RankCall(name=name, case=_case(op, phase, stated), count=times, kernel_count=kernel_count)


def collective(name: str, kind: str, size_bytes: int, dim: str, *, is_beside: bool = False) -> RankCall:
    """Return a call of a collective."""
    return RankCall(name=name, transfer=Transfer(kind=kind, bytes=size_bytes, dim=dim), is_beside=is_beside)


def pointwise(
    name: str, elements: int, dtype: str, function: str, *, operands: int = 1, times: int = 1, **formats: str
) -> RankCall:
    """Return a call of an element-wise kernel with one to three whole operands."""
    return _pointwise(name, elements, dtype, function, "forward", operands, times, formats)


def pointwise_back(
    name: str, elements: int, dtype: str, function: str, *, operands: int = 1, times: int = 1, **formats: str
) -> RankCall:
    """Return the call of an element-wise function's gradients."""
    return _pointwise(name, elements, dtype, function, "backward", operands, times, formats)


def _pointwise(
    name: str, elements: int, dtype: str, function: str, phase: str, operands: int, times: int,
    formats: Mapping[str, str],
) -> RankCall:  # fmt: skip
    axes: Axes = {"elements": elements, "dtype": dtype, "function": function, **formats}
    axes |= dict.fromkeys(("b", "c")[: operands - 1], elements)
    return kernel(name, "elementwise", phase, axes, times=times)
