"""V10, metamorphic relations: scaled inputs and reordered rows change the results as they change the oracle's."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.comparison.output_comparison import comparable, values_of
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.oracle.expected_results import tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, widened
from nearpeak.validation.running.implementation_run import imported_torch, run
from nearpeak.validation.running.trial import Trial

POWERS = (1, 0, 2, -1)
"""Powers of two by which results may scale when one input doubles; doubling is exact in every binary format."""


def relations(trial: Trial) -> CheckResult:
    """Return whether the implementation obeys the metamorphic relations that the oracle obeys on the same inputs.

    The relations need no expected values, and so also expose errors that the reference shares: scaling an input scales
    the results, and a row's result does not depend on its position.
    """
    draw, first = trial.draws[0], trial.runs[0]
    if first.error or not comparable(first.outputs, draw.expected):
        return CheckResult(check="V10", status=SKIPPED, reason="V1 failed")
    numerics = tolerance_of(trial.case)
    # Integer outputs next to a scaled result do not scale with it.
    if numerics.kind in ("decomposition", "sampling") or OPS[trial.case.op].draws or "far" in numerics.rounds:
        return CheckResult(check="V10", status=SKIPPED, reason="the oracle's relations hold for its own choices only")
    before, held = values_of(first.outputs), 0
    for name, tensors, wanted, slack in _relations(draw, before):
        held += 1
        ran = run(trial.implementation, tensors, draw.arguments, outputs=trial.templates(draw))
        ran = trial.with_ties_broken(ran, tensors, wanted)
        if ran.error or not comparable(ran.outputs, draw.expected):
            return CheckResult(check="V10", status="NUMERIC_FAIL", reason=f"{name}: fails: {ran.error}")
        fault = _fault(values_of(ran.outputs), _inside_format(wanted, draw), slack)
        if fault:
            return CheckResult(check="V10", status="NUMERIC_FAIL", reason=f"{name}: {fault}")
    if not held:
        return CheckResult(check="V10", status=SKIPPED, reason="the oracle obeys none of the relations here")
    return CheckResult(check="V10", status=PASS, figures={"relations": str(held)})


def _inside_format(wanted: Mapping[str, Any], draw: Draw) -> dict[str, Any]:
    """Return the wanted values, infinite beyond the range of the format, where only the other checks judge."""
    import torch

    largest = {
        name: torch.finfo(torch_format(expected.dtype)).max if expected.dtype in UNIT_ROUNDOFF else np.inf
        for name, expected in draw.expected.items()
    }
    return {
        name: np.where(np.abs(value) >= largest.get(name, np.inf), np.inf, value) if value.dtype.kind == "f" else value
        for name, value in wanted.items()
    }


Relation = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]


def _relations(draw: Draw, before: Mapping[str, Any]) -> Iterator[Relation]:
    """Yield each relation that the oracle obeys: name, changed inputs, results that follow from `before`, tolerance."""
    oracle = _oracle(draw, draw.tensors)
    for name, tensor in draw.tensors.items():
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            continue
        tensors = {**draw.tensors, name: tensor * 2}
        doubled = _oracle(draw, tensors)
        for power in POWERS:
            factor = 2.0**power
            if _same(doubled, {key: value * factor for key, value in oracle.items()}) and oracle:
                wanted = {key: value * factor for key, value in before.items()}
                # Results that are neighbouring floats are off by one place in the oracle itself.
                with np.errstate(all="ignore"):
                    slack = {
                        key: expected.bound * max(factor, 1.0) * 2 + np.abs(doubled[key] - oracle[key] * factor)
                        for key, expected in draw.expected.items()
                    }
                yield f"2 * {name} gives {factor:g} times the result", tensors, wanted, slack
                break
    for extent in reversible_rows(draw, oracle):
        wanted = {name: _turned(value, extent) for name, value in before.items()}
        slack = {name: 2 * _turned(expected.bound, extent) for name, expected in draw.expected.items()}
        yield f"the {extent} rows in reverse", _with_reversed(draw, extent), wanted, slack


def reversible_rows(draw: Draw, oracle: Mapping[str, Any] | None = None) -> list[int]:
    """Return the leading extents for which reversed rows give the oracle's results in reverse."""
    oracle = oracle or _oracle(draw, draw.tensors)
    extents = {tensor.shape[0] for tensor in draw.tensors.values() if tensor.dim() and tensor.shape[0] > 1}
    equal, other = imported_torch().equal, {}
    if oracle and OPS[draw.case.op].valid is not None:
        other = drawn(draw.case.op, dict(draw.arguments), (draw.seed, "other"), "normal") or {}
    whole = [(draw.tensors[name], x) for name, x in other.items() if not x.is_floating_point() and x.dim()]
    # Integers that the case fixes, such as sequence lengths, are the same in other draws.
    stated = [tensor for tensor, x in whole if equal(tensor, x)]
    fixed = {tensor.shape[0] for tensor in stated if not equal(reversed_rows(tensor), tensor)}
    turned = {extent: {name: _turned(value, extent) for name, value in oracle.items()} for extent in extents - fixed}
    return [
        extent
        for extent in sorted(turned)
        if oracle and _same(_oracle(draw, _with_reversed(draw, extent)), turned[extent])
    ]


def _with_reversed(draw: Draw, extent: int) -> dict[str, Any]:
    return {
        name: reversed_rows(tensor) if tensor.dim() and tensor.shape[0] == extent else tensor
        for name, tensor in draw.tensors.items()
    }


def reversed_rows(tensor: Any) -> Any:
    """Return a tensor of any format with its first dimension in reverse."""
    import torch

    return torch.stack(tuple(tensor)[::-1])


def _turned(array: Any, extent: int) -> Any:
    return array[::-1] if array.ndim and len(array) == extent else array


def _oracle(draw: Draw, tensors: Mapping[str, Any]) -> dict[str, Any]:
    arrays = {name: widened(tensor).copy() for name, tensor in tensors.items()}
    try:
        with np.errstate(all="ignore"):
            results = OPS[draw.case.op].expected(arrays, **draw.arguments)
    except (ArithmeticError, LookupError, ValueError):
        return {}
    return {name: np.asarray(value) for name, value in results.items()}


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].shape == right[name].shape
        and np.allclose(left[name], right[name], rtol=1e-11, atol=0.0, equal_nan=True)
        for name in left
    )


def _fault(got: Mapping[str, Any], wanted: Mapping[str, Any], slack: Mapping[str, Any]) -> str:
    for name, limit in slack.items():
        with np.errstate(all="ignore"):
            near = np.abs(got[name].astype(complex) - wanted[name]) <= limit
        wrong = ~(near | (got[name] == wanted[name]) | ~np.isfinite(wanted[name]))
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(where)} is {got[name][where]}, should be {wanted[name][where]}"
    return ""


CHECK = relations
