"""Upstream gradients, expected gradients and an implementation's gradients for one set of inputs."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.case_tensors.global_state import unchanged_state
from nearpeak.case_tensors.memory_placement import copy_of
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS
from nearpeak.validation.comparison.ties import with_ties_broken
from nearpeak.validation.oracle.autograd_gradients import differentiable, gradient_tolerance, gradients_in_fp64
from nearpeak.validation.oracle.expected_results import Expected, arguments_of, sum_length, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats, gradient_answers
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded, widened
from nearpeak.validation.oracle.sensitivity import Reference, evaluated
from nearpeak.validation.running.implementation_run import LEAST_ALIGNMENT_BYTES, Implementation
from nearpeak.validation.running.trial import templates_of


def without_gradient(case: Case, draw: Draw) -> str:
    """Return why `case` has no gradient to compare, from its first draw; empty where it has one."""
    operator = OPS[case.op]
    if not any(expected.values.size for expected in draw.expected.values()):
        return "no output has an element"
    if any(tensor.is_floating_point() and tensor.element_size() == 1 for tensor in draw.tensors.values()):
        return "quantised inputs have no gradient"
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in draw.tensors.values()):
        return "whole numbers have no gradient"
    if operator.backward_reference is not None and any(
        value for name, value in case.attributes if name in operator.tolerance.forward_only
    ):
        return "the gradient's reference does not cover this case"
    if not has_closed_form(draw) and not differentiable(case):
        return "the operator has no gradient"
    return "" if upstream_of(draw, draw.seed) else "no output has a gradient"


NamedPositions = tuple[tuple[str, bytes], ...]
"""Positions by output, as bytes of int64."""


def own_positions(draw: Draw, outputs: Mapping[str, Any]) -> NamedPositions:
    """Return the positions that an implementation chose among ties, which determine its gradient.

    They are outputs of the same call. Empty where they are the oracle's, or wrong.
    """
    taken = tolerance_of(draw.case).picks.keys() & outputs.keys() & draw.expected.keys()
    wanted = {name: draw.expected[name].values for name in taken}
    chosen = {name: outputs[name].detach().cpu() for name in wanted}
    if all(np.array_equal(chosen[name], wanted[name]) for name in wanted):
        return ()
    right = with_ties_broken(draw.case, draw.tensors, chosen, wanted, draw)
    if not all(np.array_equal(right[name], wanted[name]) for name in wanted):
        return ()
    return tuple((name, positions.numpy().astype(np.int64).tobytes()) for name, positions in chosen.items())


def named_by(draw: Draw, outputs: Mapping[str, Any], got: Mapping[str, Any]) -> NamedPositions:
    """Return the positions that a gradient refers to, as the implementation returns them or as the gradient shows.

    Where an operator returns values without positions, any of equal values may be the one that has a gradient.
    """
    picks = tolerance_of(draw.case).picks
    shown: dict[str, Any] = {}
    for name, source in picks.items() if OPS[draw.case.op].at_positions is not None else ():
        x, gradient = draw.tensors.get(source), got.get(f"grad_{source}")
        values = [expected.values for expected in draw.expected.values() if expected.values.dtype.kind == "f"]
        if name in outputs or x is None or gradient is None or gradient.shape != x.shape or len(values) != 1:
            continue
        if values[0].shape == tuple(x.shape[:-1]):
            equal = widened(x) == values[0][..., None]
            shown[name] = np.where(equal, np.abs(widened(gradient)), -1.0).argmax(axis=-1)
    return own_positions(draw, outputs) or tuple(
        (k, expected.astype(np.int64).tobytes()) for k, expected in shown.items()
    )


def upstream_of(draw: Draw, seed: int) -> dict[str, Any] | None:
    """Return a random upstream gradient for every float output; none where there is no float output.

    It is dense for normal inputs and strided for others, so that kernels must respect strides.

    Outputs of one byte are piecewise constant: they have a gradient only where the operator defines one.
    """
    import torch

    distribution, formats = draw.distribution, declared_formats(draw.case)
    ruled = any(
        expected.is_floating_point and expected.itemsize == 1 for expected in formats.values()
    ) and has_closed_form(draw)
    again = "" if draw.seed in (0, seed) else f" {draw.seed}"
    random = torch.Generator().manual_seed(zlib.crc32(f"{seed} {distribution}{again}".encode()))
    upstream = {
        name: torch.randn(expected.values.shape, generator=random, dtype=torch.float64).to(formats[name])
        for name, expected in draw.expected.items()
        if formats[name].is_floating_point and (formats[name].itemsize > 1 or ruled)
    }
    for gradient in upstream.values() if distribution != "normal" else ():
        if gradient.numel() > 2:
            gradient.view(-1)[0], gradient.view(-1)[-1] = 0.0, 1.0
    if distribution != "normal":
        aligned = tolerance_of(draw.case).kind == "contraction"
        upstream = {name: _not_dense(gradient, aligned=aligned) for name, gradient in upstream.items()}
    return upstream or None


def _not_dense(gradient: Any, *, aligned: bool) -> Any:
    """Return the same numbers with reversed memory order of dimensions, or with gaps where that changes nothing.

    Upstream gradients have the layout that another operator produced, such as a transposed product.

    Args:
        aligned: whether rows begin at multiples of 16 bytes, in 16 and 32 bits, as PyTorch's grouped products require.
    """
    each = LEAST_ALIGNMENT_BYTES // 2
    if gradient.dim() > 1 and not (aligned and gradient.shape[0] % each):
        order = tuple(reversed(range(gradient.dim())))
        turned = gradient.permute(order).contiguous().permute(order)
        if not turned.is_contiguous():
            return turned
    if gradient.dim() > 1:
        wide = gradient.new_zeros((*gradient.shape[:-1], 2 * gradient.shape[-1]))
        return wide[..., : gradient.shape[-1]].copy_(gradient)
    spread = gradient.new_zeros((*gradient.shape, 2))
    return spread[..., 0].copy_(gradient)


def as_a_sum_gives(upstream: Mapping[str, Any]) -> dict[str, Any]:
    """Return the upstream gradients of the sum of all results: ones, expanded from one number with strides of 0."""
    return {name: gradient.new_ones(()).expand(gradient.shape) for name, gradient in upstream.items()}


@lru_cache(maxsize=24)
def expected_gradients(
    draw: Draw, seed: int, names: tuple[str, ...], named: NamedPositions, *, of_sum: bool
) -> dict[str, Expected]:
    """Return the expected gradients `names` of one round, at the positions `named` instead of the oracle's if any.

    Args:
        of_sum: whether they are gradients of the sum of all results.
    """
    upstream = upstream_of(draw, seed)
    assert upstream is not None
    upstream = as_a_sum_gives(upstream) if of_sum else upstream
    above = {f"grad_{name}": gradient for name, gradient in upstream.items()}
    return gradients_expected(draw, above, names, at_positions(draw, named))


def at_positions(draw: Draw, named: NamedPositions) -> dict[str, Any]:
    """Return positions by output, as tensors of the outputs' shapes."""
    import torch

    positions = {}
    for name, content in named:
        output = draw.expected.get(name) or next(iter(draw.expected.values()))  # positions may be no output
        positions[name] = torch.as_tensor(np.frombuffer(content, np.int64).reshape(output.values.shape).copy())
    return positions


def gradients_expected(
    draw: Draw, upstream: Mapping[str, Any], names: tuple[str, ...], named: Mapping[str, Any] | None = None
) -> dict[str, Expected]:
    """Return the expected gradients `names`, derived from the oracle's outputs.

    Args:
        named: positions that replace the oracle's.
        upstream: upstream gradients, as `grad_<output>`.
    """
    operator, numerics = OPS[draw.case.op], tolerance_of(draw.case)
    formats = {name: draw.tensors[name.removeprefix("grad_")].dtype for name in names}
    length = sum_length(operator.tolerance, draw.arguments) + max(gradient.numel() for gradient in upstream.values())
    size, arguments = operator.passed, draw.arguments
    passed = None if size is None else lambda arrays: size(arrays, **arguments)
    derived = derivation(draw, upstream, named or {})
    product = numerics.kind == "contraction" and not derived.is_closed
    chained = gradient_tolerance(numerics) if product else None
    return gradient_answers(draw.case, derived.reference, derived.tensors, formats, length, chained, passed)


def unrounded(bare: Draw, seed: int) -> Draw:
    """Return the draw with unrounded results, from which the closed form computes gradients."""
    reference = OPS[bare.case.op].expected
    arrays = {name: widened(tensor) for name, tensor in bare.tensors.items()}
    results = evaluated(lambda inputs: reference(inputs, **bare.arguments), arrays, bare.case.label())
    floats = {name for name, expected in bare.expected.items() if expected.dtype in UNIT_ROUNDOFF}
    exact = {
        k: replace(expected, values=results[k]) if k in floats else expected for k, expected in bare.expected.items()
    }
    return replace(bare, expected=exact, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """The oracle's derivation of the gradients for one draw."""

    reference: Reference
    """Gives `grad_<input>` by name."""
    tensors: Mapping[str, Any]
    """Its inputs: the operator's inputs, outputs where it needs them, and upstream gradients."""
    is_closed: bool
    """Whether it is the operator's closed form in NumPy, rather than float64 autograd."""


def derivation(draw: Draw, upstream: Mapping[str, Any], named: Mapping[str, Any]) -> Derivation:
    """Return the derivation of the gradients of `draw` from `upstream`, at the positions `named` if there are any."""
    import torch

    operator = OPS[draw.case.op]
    if not has_closed_form(draw):
        taken = tolerance_of(draw.case).picks.keys() & draw.expected.keys() if operator.at_positions else ()
        whole = {name: torch.as_tensor(np.array(draw.expected[name].values)) for name in taken}
        tensors = {**draw.tensors, **whole, **named, **upstream}
        return Derivation(reference=lambda arrays: gradients_in_fp64(draw, arrays), tensors=tensors, is_closed=False)
    closed, arguments = operator.backward_reference, backward_arguments(draw)
    assert closed is not None  # it has a closed form
    outputs = {
        name: torch.as_tensor(
            expected.values if expected.values.dtype.kind == "i" else rounded(expected.values, torch.float64)
        )
        for name, expected in draw.expected.items()
    }
    tensors = {**draw.tensors, **outputs, **named, **upstream}
    return Derivation(reference=lambda arrays: closed(arrays, **arguments), tensors=tensors, is_closed=True)


def has_closed_form(draw: Draw) -> bool:
    """Return whether the operator's closed-form gradient covers the case; otherwise float64 autograd is used.

    It does not where no input has a gradient by its rule: of integer products only scales have one.
    """
    return bool(_of_closed_form(draw))


@lru_cache(maxsize=24)
def _of_closed_form(draw: Draw) -> frozenset[str]:
    """Return the gradients that the operator's own reference gives, as `grad_<input>`."""
    reference = OPS[draw.case.op].backward_reference
    if reference is None:
        return frozenset()
    known = {**draw.tensors, **{name: expected.values for name, expected in draw.expected.items()}}
    above = {f"grad_{name}": np.zeros(expected.values.shape) for name, expected in draw.expected.items()}
    try:
        with np.errstate(all="ignore"):
            arrays = {
                name: (np.array(expected) if isinstance(expected, np.ndarray) else widened(expected).copy())
                for name, expected in (known | above).items()
            }
            return frozenset(reference(arrays, **backward_arguments(draw)))
    except NotModelledError:
        return frozenset()


def leaves_of(draw: Draw) -> tuple[str, ...]:
    """Return the inputs that have a gradient: no integers, and no state that the operator updates in place.

    PyTorch refuses in-place updates of a state that requires a gradient, such as running statistics.
    """
    closed = (
        _of_closed_form(draw) if draw.expected else frozenset()
    )  # draws of summed gradients have no expected results
    floats = (name for name, tensor in draw.tensors.items() if tensor.is_floating_point())
    return tuple(name for name in floats if name not in draw.expected and (not closed or f"grad_{name}" in closed))


def backward_arguments(draw: Draw) -> dict[str, Any]:
    """Return the arguments of the gradient's reference: the forward pass's, and which gradients to compute."""
    signature = OPS[draw.case.op].signatures["backward"]
    wanted = {
        name: name.removeprefix("grad_") in draw.tensors
        for name, kind in signature.attributes.items()
        if name.startswith("grad_") and kind is bool
    }
    known = {name: value for name, value in draw.arguments.items() if name in signature.names()}
    return arguments_of(OPS[draw.case.op].case("backward", **(known | wanted)))


def gradients_of(
    implementation: Implementation, draw: Draw, upstream: Mapping[str, Any], device: str | None = None
) -> dict[str, Any]:
    """Return the implementation's gradients by name, from its own rule or from PyTorch's autograd."""
    return differentiated(implementation, draw, upstream, device)[0]


def differentiated(
    implementation: Implementation, draw: Draw, upstream: Mapping[str, Any], device: str | None = None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the implementation's gradients by name, and the outputs of the same forward call if there is one.

    Args:
        device: device of all inputs; that of the draw if none.

    Raises:
        ChangedStateError: it leaves global state changed.
    """
    import torch

    tensors, upstream = (
        {name: copy_of(torch, tensor, device) for name, tensor in group.items()} for group in (draw.tensors, upstream)
    )
    with torch.enable_grad(), unchanged_state(torch):
        if implementation.backward is not None:
            return _by_its_rule(implementation, draw, tensors, upstream), {}
        return _by_autograd(implementation, draw, tensors, upstream)


def _by_its_rule(
    implementation: Implementation, draw: Draw, tensors: Mapping[str, Any], upstream: Mapping[str, Any]
) -> dict[str, Any]:
    import torch

    assert implementation.backward is not None  # it has a rule
    gradients = {f"grad_{name}": gradient for name, gradient in upstream.items()}
    numpy = implementation.arrays == "numpy"
    arrays = {name: tensor.numpy() if numpy else tensor for name, tensor in (*tensors.items(), *gradients.items())}
    results = implementation.backward(arrays, **draw.arguments)
    return {name: torch.as_tensor(value) for name, value in results.items()}


def _by_autograd(
    implementation: Implementation, draw: Draw, tensors: Mapping[str, Any], upstream: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    import torch

    leaves = {name: tensors[name].requires_grad_() for name in leaves_of(draw)}
    written = {"out": templates_of(draw)} if implementation.takes_out else {}
    returned = implementation.call({**tensors, **leaves}, **draw.arguments, **written)
    outputs = written.get("out", {}) | dict(returned or {})
    live = {name: y for name, y in outputs.items() if name in upstream and y.requires_grad}
    if not live or not leaves:
        return {}, outputs
    gradients = torch.autograd.grad(
        list(live.values()),
        list(leaves.values()),
        [upstream[name] for name in live],
        allow_unused=True,
    )
    grads = {f"grad_{name}": grad for name, grad in zip(leaves, gradients, strict=True) if grad is not None}
    return grads, outputs
