"""Check of one timed call's outputs against the oracle for the inputs of that call."""

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS

Arrays = Mapping[str, Any]


def reverified(
    record: Validation, case: Case, prepared: Prepared, seen: tuple[int, Arrays], inputs: Arrays
) -> Validation:
    """Return the record with V11 replaced by the comparison of a timed call's outputs with the oracle.

    V11 stays where there is no comparison: inputs are updated in place, or the runner does not state its upstream
    gradients.

    Args:
        seen: number of the timed set of inputs, and its outputs.
        inputs: that set.
    """
    number, outputs = seen
    if outputs.keys() & inputs.keys():
        return record
    result = timed_result(case, inputs, outputs, prepared.upstream[number] if prepared.upstream else None)
    if result is None:
        return record
    results = tuple(result if check.check == result.check else check for check in record.results)
    # Only a timed run reproduces an error that shows only when timed.
    words = shlex.split(record.command)
    again = shlex.join(["nearpeak", "measure", *words[2 : words.index("--seed")]]) if result.failed else record.command
    return dataclasses.replace(record, results=results, command=again)


def timed_result(case: Case, inputs: Arrays, outputs: Arrays, upstream: Arrays | None) -> CheckResult | None:
    """Return the comparison of `outputs` with the oracle; none where they cannot be compared."""
    import torch

    from nearpeak.errors import MeasureError, NotModelledError
    from nearpeak.ops.shared.torch_names import torch_format
    from nearpeak.validation import forward_case
    from nearpeak.validation.comparison.output_comparison import comparable, compared
    from nearpeak.validation.comparison.ties import canonical, with_ties_broken
    from nearpeak.validation.comparison.torch_baseline import as_good, baseline_of
    from nearpeak.validation.oracle.expected_results import tolerance_of
    from nearpeak.validation.oracle.float64_oracle import bounded_draw, declared_formats
    from nearpeak.validation.oracle.gradient_oracle import gradients_expected

    operator, forward = OPS[case.op], forward_case(case)
    if operator.draws or (case.phase != "forward" and upstream is None) or _written_twice(forward, inputs):
        return None
    specs = operator.inputs(**forward_arguments(case))
    tensors = {
        name: torch.as_tensor(np.asarray(inputs[name])).to(torch_format(spec.dtype)) for name, spec in specs.items()
    }
    try:
        draw = bounded_draw(forward, tensors, "timed")
        expected: Mapping[str, Any] = draw.expected
        above: dict[str, Any] = {}
        if upstream is not None and case.phase != "forward":
            above = {
                name: torch.as_tensor(np.asarray(output)).to(declared_formats(forward)[name.removeprefix("grad_")])
                for name, output in upstream.items()
            }
            expected = gradients_expected(draw, above, tuple(name for name in outputs))
    except (MeasureError, NotModelledError):
        return None
    arrays = {name: np.asarray(output) for name, output in outputs.items()}
    got = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    if not comparable(got, expected):
        names = ", ".join(f"{name}{list(np.shape(output))}" for name, output in outputs.items())
        return CheckResult(check="V11", status="SHAPE_FAIL", reason=f"a timed call gives {names}")
    if case.phase == "forward":
        wanted = {name: output.values for name, output in expected.items()}
        got = canonical(forward, got, wanted)
        judged = got if operator.as_right is not None else tolerance_of(forward).picks
        ranked = {name: torch.as_tensor(got[name]) for name in judged if name in got}
        got |= {
            name: output.numpy() for name, output in with_ties_broken(forward, tensors, ranked, wanted, draw).items()
        }
    result = compared("V11", got, expected, "a timed call")
    if not result.failed:
        return result
    return as_good(result, baseline_of(draw) if case.phase == "forward" else usual(draw, above), expected)


def _written_twice(case: Case, inputs: Arrays) -> bool:
    """Return whether a position is written more than once, so that its value depends on the order."""
    numerics = OPS[case.op].tolerance
    if any(map(forward_arguments(case).get, numerics.repeats_if)):
        return False
    rows = (np.sort(np.atleast_2d(np.asarray(inputs[name])), axis=-1) for name in numerics.distinct)
    return any(bool((row[..., 1:] == row[..., :-1]).any()) for row in rows)


def usual(draw: Any, above: Arrays) -> dict[str, Any]:
    """Return PyTorch's own gradients: it sums those of biases in bf16, and the timed implementation may too.

    Args:
        above: upstream gradients, as `grad_<output>`.
    """
    from nearpeak.validation import pytorch
    from nearpeak.validation.comparison.output_comparison import values_of
    from nearpeak.validation.oracle.gradient_oracle import gradients_of

    upstream = {name.removeprefix("grad_"): gradient for name, gradient in above.items()}
    return values_of(gradients_of(pytorch(draw.case), draw, upstream))
