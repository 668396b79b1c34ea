"""V9: gradients agree with the closed form, for an upstream gradient that is random and nowhere uniform."""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.validation import SKIPPED, CheckResult
from nearpeak.errors import NotModelledError
from nearpeak.measure.placing import copy_of
from nearpeak.measure.validation._autograd import differentiable, gradient_contract, gradients_in_fp64
from nearpeak.measure.validation._baseline import as_good
from nearpeak.measure.validation._compare import comparable, compared, values_of
from nearpeak.measure.validation._formats import rounded, widened
from nearpeak.measure.validation._oracle import (
    Expected,
    Question,
    arguments_of,
    contract_of,
    declared_formats,
    gradient_answers,
    question,
    sum_length,
)
from nearpeak.measure.validation._picks import settled
from nearpeak.measure.validation._run import Implementation, status_of, words_of
from nearpeak.measure.validation._trial import Trial, templates_of
from nearpeak.ops import OPS


def gradients(trial: Trial) -> CheckResult:
    """Return whether the gradients hold for two upstream gradients, the second with a zero first and a one last.

    A uniform upstream gradient, as a summed loss gives, hides transposed and wrongly scaled gradients.
    """
    missing = without_gradient(trial.case, trial.questions[0])
    if not missing and trial.implementation.arrays != "torch" and trial.implementation.backward is None:
        missing = "the implementation has no gradient"
    if missing:
        return CheckResult(check="V9", status=SKIPPED, reason=missing)
    results = [_of_round(trial, asked) for asked in asked_of(trial)]
    failed = [result for result in results if result.failed]
    return failed[0] if failed else results[0]


def asked_of(trial: Trial) -> tuple[Question, ...]:
    """Return the rounds whose gradients are looked at: the first two, and what few results were asked again.

    Where none of them tells a gradient from a wrong one, as of long recurrences with large weights, whose functions
    are saturated or whose gradients grow beyond what any format follows, smaller inputs are asked too.
    """
    again = (asked for asked in trial.questions[2:] if asked.distribution == "normal")
    first = (*trial.questions[:2], *again)
    return (*first, *_gentler(trial.case, trial.seed, first))


@lru_cache(maxsize=64)
def _gentler(case: Case, seed: int, asked: tuple[Question, ...]) -> tuple[Question, ...]:
    """Return the rounds of smaller inputs that tell gradients which no round in `asked` tells."""
    known = [_told(one, seed) for one in asked]
    missing = set().union(*(one.keys() for one in known)) - {
        name for one in known for name, told in one.items() if told
    }
    found = []
    for distribution in GENTLER:
        drawn = question(case, seed, distribution) if missing else None
        told = set() if drawn is None else {name for name, is_told in _told(drawn, seed).items() if is_told}
        if drawn is not None and told & missing:
            found.append(drawn)
            missing -= told
    return tuple(found)


GENTLER = ("gentle",)
TOLD = 8.0
"""Bounds that the largest element of a gradient is at least: one that is a quarter too small is then off by two."""


def _told(asked: Question, seed: int) -> dict[str, bool]:
    """Return by gradient whether the round tells it from a wrong one."""
    if upstream_of(asked, seed) is None:
        return {}
    names = tuple(f"grad_{name}" for name, tensor in asked.tensors.items() if tensor.is_floating_point())
    found = expected_gradients(asked, seed, names)
    with np.errstate(all="ignore"):
        return {
            name: bool(np.nanmax(np.abs(one.values) / one.bound, initial=0.0) >= TOLD) for name, one in found.items()
        }


def without_gradient(case: Case, asked: Question) -> str:
    """Return why `case` has no gradient to compare, given its first question; empty where it has one."""
    operator = OPS[case.op]
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


def _of_round(trial: Trial, asked: Question) -> CheckResult:
    """Return the comparison for the inputs of one round."""
    upstream = upstream_of(asked, trial.seed)
    if upstream is None:
        return CheckResult(check="V9", status=SKIPPED, reason="no output has a gradient")
    try:
        got, outputs = differentiated(trial.implementation, asked, upstream)
    except Exception as error:  # whatever an implementation raises is its result
        without = "derivative" in str(error) and "not implemented" in str(error)
        status = SKIPPED if without else status_of(error)
        return CheckResult(check="V9", status=status, reason=f"its gradient: {words_of(error)}")
    expected = expected_gradients(asked, trial.seed, tuple(got), _own_positions(asked, outputs))
    if not expected:
        return CheckResult(check="V9", status=SKIPPED, reason="the case asks for no gradient")
    if not comparable(got, expected):
        return CheckResult(check="V9", status="SHAPE_FAIL", reason="gradients have other shapes than their inputs")
    return _judged(values_of(got), expected, asked, upstream)


Named = tuple[tuple[str, bytes], ...]
"""Positions by output, as bytes of int64."""


def _own_positions(asked: Question, outputs: Mapping[str, Any]) -> Named:
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


def _judged(
    got: Mapping[str, Any], expected: Mapping[str, Expected], asked: Question, upstream: Mapping[str, Any]
) -> CheckResult:
    """Return the comparison, passed where PyTorch's own gradients are about as far from the oracle."""
    result = compared("V9", got, expected, f"gradients of {asked.distribution} inputs")
    if not result.failed or result.worst is None:
        return result
    usual = gradients_of(Implementation(name="PyTorch", call=OPS[asked.case.op].torch_call), asked, upstream)
    return as_good(result, values_of(usual), expected) if comparable(usual, expected) else result


def upstream_of(asked: Question, seed: int) -> dict[str, Any] | None:
    """Return a random upstream gradient for every float output; none where there is none.

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
    return upstream or None


@lru_cache(maxsize=64)
def expected_gradients(asked: Question, seed: int, names: tuple[str, ...], named: Named = ()) -> dict[str, Expected]:
    """Return what is expected of the gradients `names` of one round, at other positions than the oracle's if named."""
    import torch

    upstream = upstream_of(asked, seed)
    assert upstream is not None
    above = {f"grad_{name}": one for name, one in upstream.items()}
    positions = {
        name: torch.as_tensor(np.frombuffer(held, np.int64).reshape(asked.expected[name].values.shape).copy())
        for name, held in named
    }
    return gradients_expected(asked, above, names, positions)


def gradients_expected(
    asked: Question, upstream: Mapping[str, Any], names: tuple[str, ...], named: Mapping[str, Any] | None = None
) -> dict[str, Expected]:
    """Return what is expected of the gradients `names`, with the outputs that the oracle gives them.

    Args:
        named: positions among the outputs that take the place of the oracle's.
        upstream: gradients from above, as `grad_<output>`.
    """
    import torch

    operator, numerics = OPS[asked.case.op], contract_of(asked.case)
    formats = {name: asked.tensors[name.removeprefix("grad_")].dtype for name in names}
    length = sum_length(operator.numerics, asked.arguments) + max(one.numel() for one in upstream.values())
    named = named or {}
    size, given = operator.passed, asked.arguments
    passed = None if size is None else lambda arrays: size(arrays, **given)
    if not has_closed_form(asked):
        chained = gradient_contract(numerics) if numerics.kind == "contraction" else None
        taken = numerics.picks.keys() & asked.expected.keys() if operator.at_positions else ()
        whole = {name: torch.as_tensor(np.array(asked.expected[name].values)) for name in taken}
        tensors = {**asked.tensors, **whole, **named, **upstream}
        return gradient_answers(
            asked.case, lambda arrays: gradients_in_fp64(asked, arrays), tensors, formats, length, chained, passed
        )
    reference, arguments = operator.backward_reference, backward_arguments(asked)
    assert reference is not None  # it has a closed form
    outputs = {
        name: torch.as_tensor(one.values if one.values.dtype.kind == "i" else rounded(one.values, torch.float64))
        for name, one in asked.expected.items()
    }
    tensors = {**asked.tensors, **outputs, **named, **upstream}
    return gradient_answers(
        asked.case, lambda arrays: reference(arrays, **arguments), tensors, formats, length,
        passed=passed,
    )  # fmt: skip


@lru_cache(maxsize=64)
def has_closed_form(asked: Question) -> bool:
    """Say whether the operator's own reference of the gradient covers the case; float64 autograd does otherwise.

    It covers nothing where no input has a gradient by its rule: of products of whole numbers only scales have one.
    """
    reference = OPS[asked.case.op].backward_reference
    if reference is None:
        return False
    given = {**asked.tensors, **{name: one.values for name, one in asked.expected.items()}}
    above = {f"grad_{name}": np.zeros(one.values.shape) for name, one in asked.expected.items()}
    try:
        with np.errstate(all="ignore"):
            arrays = {name: _array(one) for name, one in (given | above).items()}
            return bool(reference(arrays, **backward_arguments(asked)))
    except NotModelledError:
        return False


def _array(one: Any) -> Any:
    return np.array(one) if isinstance(one, np.ndarray) else widened(one).copy()


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


def gradients_of(implementation: Implementation, asked: Question, upstream: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gradients of the implementation by name, from its own rule or from PyTorch's autograd."""
    return differentiated(implementation, asked, upstream)[0]


def differentiated(
    implementation: Implementation, asked: Question, upstream: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the gradients of the implementation by name, and the outputs of the call that they are of, if one is."""
    import torch

    tensors = {name: copy_of(torch, tensor) for name, tensor in asked.tensors.items()}
    backward = implementation.backward
    if backward is not None:
        given = {f"grad_{name}": gradient.clone() for name, gradient in upstream.items()}
        numpy = implementation.arrays == "numpy"
        arrays = {name: tensor.numpy() if numpy else tensor for name, tensor in (tensors | given).items()}
        return {name: torch.as_tensor(value) for name, value in backward(arrays, **asked.arguments).items()}, {}
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items() if tensor.is_floating_point()}
    given = {"out": templates_of(asked)} if implementation.takes_out else {}
    returned = implementation.call({**tensors, **leaves}, **asked.arguments, **given)
    outputs = given.get("out", {}) | dict(returned or {})
    live = {name: y for name, y in outputs.items() if name in upstream and y.requires_grad}
    if not live:
        return {}, outputs
    found = torch.autograd.grad(
        list(live.values()),
        list(leaves.values()),
        [upstream[name] for name in live],
        allow_unused=True,
    )
    grads = {f"grad_{name}": grad for name, grad in zip(leaves, found, strict=True) if grad is not None}
    return grads, outputs


CHECK = gradients
