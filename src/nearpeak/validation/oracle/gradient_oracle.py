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
from nearpeak.validation.comparison.ties import settled
from nearpeak.validation.oracle.autograd_gradients import differentiable, gradient_contract, gradients_in_fp64
from nearpeak.validation.oracle.expected_results import Expected, arguments_of, contract_of, sum_length
from nearpeak.validation.oracle.float64_oracle import Question, declared_formats, gradient_answers
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded, widened
from nearpeak.validation.oracle.sensitivity import Reference, evaluated
from nearpeak.validation.running.implementation_run import LEAST_ALIGNMENT_BYTES, Implementation
from nearpeak.validation.running.trial import templates_of


def without_gradient(case: Case, asked: Question) -> str:
    """Return why `case` has no gradient to compare, given its first question; empty where it has one."""
    operator = OPS[case.op]
    if not any(one.values.size for one in asked.expected.values()):
        return "no output has an element"
    if any(tensor.is_floating_point() and tensor.element_size() == 1 for tensor in asked.tensors.values()):
        return "quantised inputs have no gradient"
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in asked.tensors.values()):
        return "whole numbers have no gradient"
    if operator.backward_reference is not None and any(
        value for name, value in case.attributes if name in operator.numerics.forward_only
    ):
        return "the gradient's reference does not cover this case"
    if not has_closed_form(asked) and not differentiable(case):
        return "the operator has no gradient"
    return "" if upstream_of(asked, asked.seed) else "no output has a gradient"


Named = tuple[tuple[str, bytes], ...]
"""Positions by output, as bytes of int64."""


def own_positions(asked: Question, outputs: Mapping[str, Any]) -> Named:
    """Return the positions that an implementation chose where it may: its gradient is that of its own choice.

    They are those of the same call. Where they are the oracle's, or wrong ones, nothing is returned.
    """
    taken = contract_of(asked.case).picks.keys() & outputs.keys() & asked.expected.keys()
    wanted = {name: asked.expected[name].values for name in taken}
    own = {name: outputs[name].detach().cpu() for name in wanted}
    if all(np.array_equal(own[name], wanted[name]) for name in wanted):
        return ()
    right = settled(asked.case, asked.tensors, own, wanted, asked)
    if not all(np.array_equal(right[name], wanted[name]) for name in wanted):
        return ()
    return tuple((name, one.numpy().astype(np.int64).tobytes()) for name, one in own.items())


def named_by(asked: Question, outputs: Mapping[str, Any], got: Mapping[str, Any]) -> Named:
    """Return the positions of which a gradient is, as an implementation returns them or as the gradient itself shows.

    Where a value is asked for without its position, any of equal values is right: it is the one that has a gradient.
    """
    picks = contract_of(asked.case).picks
    shown: dict[str, Any] = {}
    for name, source in picks.items() if OPS[asked.case.op].at_positions is not None else ():
        x, gradient = asked.tensors.get(source), got.get(f"grad_{source}")
        values = [one.values for one in asked.expected.values() if one.values.dtype.kind == "f"]
        if name in outputs or x is None or gradient is None or gradient.shape != x.shape or len(values) != 1:
            continue
        if values[0].shape == tuple(x.shape[:-1]):
            equal = widened(x) == values[0][..., None]
            shown[name] = np.where(equal, np.abs(widened(gradient)), -1.0).argmax(axis=-1)
    return own_positions(asked, outputs) or tuple((k, one.astype(np.int64).tobytes()) for k, one in shown.items())


def upstream_of(asked: Question, seed: int) -> dict[str, Any] | None:
    """Return a random upstream gradient for every float output; none where there is none.

    That of normal inputs lies densely, the others do not: strides must be followed.

    What is rounded to a byte is constant wherever it is continuous: it has a gradient by definition of a rule only.
    """
    import torch

    distribution, formats = asked.distribution, declared_formats(asked.case)
    ruled = any(one.is_floating_point and one.itemsize == 1 for one in formats.values()) and has_closed_form(asked)
    again = "" if asked.seed in (0, seed) else f" {asked.seed}"
    random = torch.Generator().manual_seed(zlib.crc32(f"{seed} {distribution}{again}".encode()))
    upstream = {
        name: torch.randn(one.values.shape, generator=random, dtype=torch.float64).to(formats[name])
        for name, one in asked.expected.items()
        if formats[name].is_floating_point and (formats[name].itemsize > 1 or ruled)
    }
    for gradient in upstream.values() if distribution != "normal" else ():
        if gradient.numel() > 2:
            gradient.view(-1)[0], gradient.view(-1)[-1] = 0.0, 1.0
    if distribution != "normal":
        aligned = contract_of(asked.case).kind == "contraction"
        upstream = {name: _not_dense(gradient, aligned=aligned) for name, gradient in upstream.items()}
    return upstream or None


def _not_dense(gradient: Any, *, aligned: bool) -> Any:
    """Return the same numbers with dimensions in the reverse order in memory, or with gaps where that changes nothing.

    What comes from above is what another operator makes, as transposed by a product.

    Args:
        aligned: whether rows begin at multiples of 16 bytes, in 16 bits and 32, as PyTorch's grouped products ask.
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
    """Return upstream gradients as the sum of all results has them: ones that are one number, without strides."""
    return {name: one.new_ones(()).expand(one.shape) for name, one in upstream.items()}


@lru_cache(maxsize=24)
def expected_gradients(
    asked: Question, seed: int, names: tuple[str, ...], named: Named, *, of_sum: bool
) -> dict[str, Expected]:
    """Return what is expected of the gradients `names` of one round, at other positions than the oracle's if named.

    Args:
        of_sum: of the sum of all results.
    """
    upstream = upstream_of(asked, seed)
    assert upstream is not None
    upstream = as_a_sum_gives(upstream) if of_sum else upstream
    above = {f"grad_{name}": one for name, one in upstream.items()}
    return gradients_expected(asked, above, names, at_positions(asked, named))


def at_positions(asked: Question, named: Named) -> dict[str, Any]:
    """Return positions by output, as tensors of the outputs' shapes."""
    import torch

    return {
        name: torch.as_tensor(np.frombuffer(held, np.int64).reshape(_shape(asked, name)).copy()) for name, held in named
    }


def _shape(asked: Question, name: str) -> tuple[int, ...]:
    """Return the shape of positions: that of the values there, where positions are not asked for."""
    one = asked.expected.get(name) or next(iter(asked.expected.values()))
    return tuple(one.values.shape)


def gradients_expected(
    asked: Question, upstream: Mapping[str, Any], names: tuple[str, ...], named: Mapping[str, Any] | None = None
) -> dict[str, Expected]:
    """Return what is expected of the gradients `names`, with the outputs that the oracle gives them.

    Args:
        named: positions among the outputs that take the place of the oracle's.
        upstream: gradients from above, as `grad_<output>`.
    """
    operator, numerics = OPS[asked.case.op], contract_of(asked.case)
    formats = {name: asked.tensors[name.removeprefix("grad_")].dtype for name in names}
    length = sum_length(operator.numerics, asked.arguments) + max(one.numel() for one in upstream.values())
    size, given = operator.passed, asked.arguments
    passed = None if size is None else lambda arrays: size(arrays, **given)
    derived = derivation(asked, upstream, named or {})
    product = numerics.kind == "contraction" and not derived.is_closed
    chained = gradient_contract(numerics) if product else None
    return gradient_answers(asked.case, derived.reference, derived.tensors, formats, length, chained, passed)


def unrounded(bare: Question, seed: int) -> Question:
    """Return the question with results that are not rounded, of which the closed form makes gradients."""
    reference = OPS[bare.case.op].expected
    arrays = {name: widened(tensor) for name, tensor in bare.tensors.items()}
    found = evaluated(lambda given: reference(given, **bare.arguments), arrays, bare.case.label())
    floats = {name for name, one in bare.expected.items() if one.dtype in UNIT_ROUNDOFF}
    exact = {k: replace(one, values=found[k]) if k in floats else one for k, one in bare.expected.items()}
    return replace(bare, expected=exact, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How the oracle derives the gradients of one question."""

    reference: Reference
    """Gives `grad_<input>` by name."""
    tensors: Mapping[str, Any]
    """What it takes: inputs, outputs where it asks for them, and what comes from above."""
    is_closed: bool
    """Whether it is the operator's own closed form, in NumPy; else it is autograd in float64."""


def derivation(asked: Question, upstream: Mapping[str, Any], named: Mapping[str, Any]) -> Derivation:
    """Return how the gradients of `asked` are derived from `upstream`, at the positions `named` where there are any."""
    import torch

    operator = OPS[asked.case.op]
    if not has_closed_form(asked):
        taken = contract_of(asked.case).picks.keys() & asked.expected.keys() if operator.at_positions else ()
        whole = {name: torch.as_tensor(np.array(asked.expected[name].values)) for name in taken}
        tensors = {**asked.tensors, **whole, **named, **upstream}
        return Derivation(reference=lambda arrays: gradients_in_fp64(asked, arrays), tensors=tensors, is_closed=False)
    closed, arguments = operator.backward_reference, backward_arguments(asked)
    assert closed is not None  # it has a closed form
    outputs = {
        name: torch.as_tensor(one.values if one.values.dtype.kind == "i" else rounded(one.values, torch.float64))
        for name, one in asked.expected.items()
    }
    tensors = {**asked.tensors, **outputs, **named, **upstream}
    return Derivation(reference=lambda arrays: closed(arrays, **arguments), tensors=tensors, is_closed=True)


def has_closed_form(asked: Question) -> bool:
    """Say whether the operator's own reference of the gradient covers the case; float64 autograd does otherwise.

    It covers nothing where no input has a gradient by its rule: of products of whole numbers only scales have one.
    """
    return bool(_of_closed_form(asked))


@lru_cache(maxsize=24)
def _of_closed_form(asked: Question) -> frozenset[str]:
    """Return the gradients that the operator's own reference gives, as `grad_<input>`."""
    reference = OPS[asked.case.op].backward_reference
    if reference is None:
        return frozenset()
    given = {**asked.tensors, **{name: one.values for name, one in asked.expected.items()}}
    above = {f"grad_{name}": np.zeros(one.values.shape) for name, one in asked.expected.items()}
    try:
        with np.errstate(all="ignore"):
            arrays = {
                name: (np.array(one) if isinstance(one, np.ndarray) else widened(one).copy())
                for name, one in (given | above).items()
            }
            return frozenset(reference(arrays, **backward_arguments(asked)))
    except NotModelledError:
        return frozenset()


def leaves_of(asked: Question) -> tuple[str, ...]:
    """Return the inputs that have a gradient: no whole numbers, and no state that the operator updates.

    PyTorch refuses a state that requires one: running statistics are written to in place, as buffers are.
    """
    closed = _of_closed_form(asked) if asked.expected else frozenset()  # of what is added up nothing is expected
    floats = (name for name, tensor in asked.tensors.items() if tensor.is_floating_point())
    return tuple(name for name in floats if name not in asked.expected and (not closed or f"grad_{name}" in closed))


def backward_arguments(asked: Question) -> dict[str, Any]:
    """Return the arguments of the gradient's reference: those of the forward pass, and which gradients there are."""
    signature = OPS[asked.case.op].signatures["backward"]
    wanted = {
        name: name.removeprefix("grad_") in asked.tensors
        for name, kind in signature.attributes.items()
        if name.startswith("grad_") and kind is bool
    }
    known = {name: value for name, value in asked.arguments.items() if name in signature.names()}
    return arguments_of(OPS[asked.case.op].case("backward", **(known | wanted)))


def gradients_of(
    implementation: Implementation, asked: Question, upstream: Mapping[str, Any], device: str | None = None
) -> dict[str, Any]:
    """Return the gradients of the implementation by name, from its own rule or from PyTorch's autograd."""
    return differentiated(implementation, asked, upstream, device)[0]


def differentiated(
    implementation: Implementation, asked: Question, upstream: Mapping[str, Any], device: str | None = None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the gradients of the implementation by name, and the outputs of the call that they are of, if one is.

    Args:
        device: where it is given everything; where the question lies if none.

    Raises:
        ChangedStateError: it leaves global state changed.
    """
    import torch

    tensors, upstream = (
        {name: copy_of(torch, tensor, device) for name, tensor in given.items()} for given in (asked.tensors, upstream)
    )
    with torch.enable_grad(), unchanged_state(torch):
        if implementation.backward is not None:
            return _by_its_rule(implementation, asked, tensors, upstream), {}
        return _by_autograd(implementation, asked, tensors, upstream)


def _by_its_rule(
    implementation: Implementation, asked: Question, tensors: Mapping[str, Any], upstream: Mapping[str, Any]
) -> dict[str, Any]:
    import torch

    assert implementation.backward is not None  # it has a rule
    given = {f"grad_{name}": gradient for name, gradient in upstream.items()}
    numpy = implementation.arrays == "numpy"
    arrays = {name: tensor.numpy() if numpy else tensor for name, tensor in (*tensors.items(), *given.items())}
    found = implementation.backward(arrays, **asked.arguments)
    return {name: torch.as_tensor(value) for name, value in found.items()}


def _by_autograd(
    implementation: Implementation, asked: Question, tensors: Mapping[str, Any], upstream: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    import torch

    leaves = {name: tensors[name].requires_grad_() for name in leaves_of(asked)}
    given = {"out": templates_of(asked)} if implementation.takes_out else {}
    returned = implementation.call({**tensors, **leaves}, **asked.arguments, **given)
    outputs = given.get("out", {}) | dict(returned or {})
    live = {name: y for name, y in outputs.items() if name in upstream and y.requires_grad}
    if not live or not leaves:
        return {}, outputs
    found = torch.autograd.grad(
        list(live.values()),
        list(leaves.values()),
        [upstream[name] for name in live],
        allow_unused=True,
    )
    grads = {f"grad_{name}": grad for name, grad in zip(leaves, found, strict=True) if grad is not None}
    return grads, outputs
