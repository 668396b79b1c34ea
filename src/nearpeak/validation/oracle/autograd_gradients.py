"""Reference gradients by float64 autograd, for operators without a gradient in closed form."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS, Tolerance
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.oracle.rounding import Nudge, stored_by
from nearpeak.validation.running.implementation_run import imported_torch

FLOATS = ("fp64", "fp32", "bf16", "fp16")
STEPS = 1
"""Intermediates that a product's gradient may store: partial results of an operand that is used twice."""


def widened_case(case: Case, wide: str = "fp64") -> Case | None:
    """Return the case with all its float formats `wide`; none where the operator has no such case."""
    formats = {name: wide for name, value in case.dtypes if value in FLOATS}
    try:
        return OPS[case.op].case("forward", **{**arguments_of(case), **formats})
    except (LookupError, ValueError):
        return None


@lru_cache(maxsize=256)
def differentiable(case: Case) -> bool:
    """Return whether PyTorch's implementation has a float64 gradient that can serve as the reference."""
    from nearpeak.validation.oracle.float64_oracle import draw_inputs

    draw, wide = draw_inputs(case, 0, "normal"), widened_case(case)
    kind = tolerance(case.op, arguments_of(case)).kind
    if draw is None or wide is None or OPS[case.op].draws or kind == "decomposition":
        return False
    if OPS[case.op].family == "optimizer":  # optimizer steps run without gradients
        return False
    if draw.tensors.keys() & draw.expected.keys():  # an in-place update is no function of its inputs
        return False
    if any(tensor.is_floating_point() and tensor.element_size() == 1 for tensor in draw.tensors.values()):
        return False
    try:
        leaves, outputs = _called(wide, {name: widened(tensor) for name, tensor in draw.tensors.items()})
        live = [output for output in outputs.values() if output.requires_grad]
        imported_torch().autograd.grad(live, list(leaves.values()), live, allow_unused=True)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):  # some results have no derivative
        return False
    return bool(live)


def live_outputs(draw: Draw) -> set[str]:
    """Return the outputs that depend differentiably on an input, or all outputs where the operator has no gradient."""
    wide = widened_case(draw.case)
    if wide is None or not differentiable(draw.case):
        return set(draw.expected)
    _, outputs = _called(wide, {name: widened(tensor) for name, tensor in draw.tensors.items()})
    return {name for name, output in outputs.items() if output.requires_grad}


def gradients_in_fp64(draw: Draw, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return `grad_<input>` by name for the inputs and `grad_<output>` in `arrays`, by float64 autograd.

    For operators evaluated at stated positions, these are among `arrays`.
    """
    wide = widened_case(draw.case)
    assert wide is not None  # it is differentiable
    torch = imported_torch()
    at_positions = OPS[wide.op].at_positions
    positions = {
        name: arrays[name] for name in tolerance(wide.op, {}).picks if at_positions is not None and name in arrays
    }
    call = OPS[wide.op].torch_call if at_positions is None or not positions else at_positions
    leaves, outputs = _called(wide, {**{name: arrays[name] for name in draw.tensors}, **positions}, call)
    live = {name: y for name, y in outputs.items() if y.requires_grad and f"grad_{name}" in arrays}
    upstream = [torch.as_tensor(np.array(arrays[f"grad_{name}"])).to(y.dtype) for name, y in live.items()]
    gradients = torch.autograd.grad(list(live.values()), list(leaves.values()), upstream, allow_unused=True)
    zeros = {name: np.zeros(leaf.shape) for name, leaf in leaves.items()}
    known = {name: grad.numpy() for name, grad in zip(leaves, gradients, strict=True) if grad is not None}
    return {f"grad_{name}": array for name, array in (zeros | known).items()}


def _called(
    wide: Case, arrays: Mapping[str, Any], call: Callable[..., Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the leaves and the outputs of `call`, by default PyTorch's implementation, in float64."""
    torch = imported_torch()
    tensors = {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items() if tensor.is_floating_point()}
    run = OPS[wide.op].torch_call if call is None else call
    nudge = stored_by(next(iter(arrays.values()), None))
    with torch.enable_grad(), nullcontext() if nudge is None else _keeping(nudge):
        # `enable_grad`: a kernel's module may have disabled it.
        return leaves, run({**tensors, **leaves}, **arguments_of(wide))


def _keeping(nudge: Nudge) -> Any:
    """Return a context in which saved tensors of the forward pass, other than inputs, are perturbed."""
    torch = imported_torch()

    def keep(saved: Any) -> Any:
        if saved.dtype != torch.float64 or saved.is_leaf:
            return saved
        return torch.as_tensor(nudge(saved.detach().numpy()))

    return torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved)


def gradient_tolerance(numerics: Tolerance) -> Tolerance:
    """Return the tolerance of a product's gradient, which is a product too."""
    return Tolerance(kind="contraction", ulp_count=numerics.ulp_count, steps_count=max(STEPS, 2 * numerics.steps_count))
