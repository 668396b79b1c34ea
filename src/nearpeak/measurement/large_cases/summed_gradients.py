"""Check of gradients that are sums over all rows of a large case, summed in float64 part by part."""

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.validation import CheckResult
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NotModelledError
from nearpeak.measurement.large_cases.independent_axes import (
    MORE,
    Arrays,
    Free,
    added_axes,
    is_large,
    parts_at,
    resized,
)
from nearpeak.measurement.large_cases.timed_output_check import usual
from nearpeak.ops import OPS

if TYPE_CHECKING:
    from nearpeak.validation.oracle.expected_results import Expected

MOST_TIMES = 512
"""Factor by which all parts may exceed the limits of a sample, which is evaluated fifteen times, a part once."""


def added_up(case: Case, inputs: Arrays, upstream: Arrays, name: str, got: Any) -> tuple[CheckResult | None, str]:
    """Return the comparison of one gradient with the float64 sum of its parts, and its description; none if not a sum.

    The error bound is computed for one random part and used for all parts.
    """
    from nearpeak.validation.comparison.output_comparison import comparable, compared
    from nearpeak.validation.comparison.torch_baseline import as_good
    from nearpeak.validation.oracle.gradient_oracle import gradients_expected

    free = next((candidate for candidate in added_axes(case, name) if len(_parts(case, candidate)) > 1), None)
    if free is None or is_large(case, MOST_TIMES):
        return None, ""
    parts, arrays_by_name = _parts(case, free), {**inputs, **upstream}
    cases = [resized(case, dict.fromkeys(free.axes, len(part))) for part in parts]
    cut = [parts_at(arrays_by_name, free.inputs, part) for part in parts]
    drawn = random.Random(case.digest + name).randrange(len(parts))
    try:
        total = sum(_values(candidate, arrays, name) for candidate, arrays in zip(cases, cut, strict=True))
        part = gradients_expected(*_answered(cases[drawn], cut[drawn]), (name,))[name]
        expected = {name: _of_all(part, total, len(parts))}
    except (MeasureError, NotModelledError):
        return None, ""
    wide = {name: np.asarray(got).astype(np.float64)}
    if not comparable(wide, expected):
        reason = f"a timed call gives {name}{list(np.shape(got))}, not {list(np.shape(total))}"
        return CheckResult(check="V11", status="SHAPE_FAIL", reason=reason), ""
    description = f"the sum over all {dict(case.axes)[free.axes[0]]} {free.axes[0]} in {len(parts)} parts"
    result = compared("V11", wide, expected, "a timed call")
    return (as_good(result, usual(*_posed(case, arrays_by_name)), expected) if result.failed else result), description


def _parts(case: Case, free: Free) -> list[Any]:
    """Return the positions of each part, few enough for a quick bound; empty where one position is too many.

    >>> from nearpeak.ops import case
    >>> gradient = case("layer_norm", "backward", rows=4096, hidden=1024, dtype="fp32")
    >>> [len(part) for part in _parts(gradient, added_axes(gradient, "grad_weight")[0])][:3]
    [256, 256, 256]
    """
    extent = dict(case.axes)[free.axes[0]]
    count = 1
    while count <= extent and is_large(resized(case, dict.fromkeys(free.axes, -(-extent // count))), MORE):
        count *= 2
    return np.array_split(np.arange(extent), count) if count <= extent else []


def _posed(case: Case, arrays: Arrays) -> tuple[Any, dict[str, Any]]:
    """Return the draw of a case without results, and its upstream gradients."""
    import torch

    from nearpeak.ops.shared.torch_names import torch_format
    from nearpeak.validation import forward_case
    from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats

    forward, arguments = forward_case(case), forward_arguments(case)
    formats = {name: torch_format(spec.dtype) for name, spec in OPS[case.op].inputs(**arguments).items()}
    above = {f"grad_{name}": dtype for name, dtype in declared_formats(forward).items() if f"grad_{name}" in arrays}
    tensors, gradients = (
        {name: torch.as_tensor(np.asarray(arrays[name])).to(dtype) for name, dtype in some.items()}
        for some in (formats, above)
    )
    draw = Draw(case=forward, arguments=arguments, tensors=tensors, expected={}, distribution="timed")
    return draw, gradients


def _answered(case: Case, arrays: Arrays) -> tuple[Any, dict[str, Any]]:
    """Return the same with unrounded results without bounds."""
    from nearpeak.validation.oracle.float64_oracle import unbounded_draw
    from nearpeak.validation.oracle.gradient_oracle import unrounded

    draw, above = _posed(case, arrays)
    return unrounded(unbounded_draw(draw.case, draw.tensors, "timed"), 0), above


def _values(case: Case, arrays_by_name: Arrays, name: str) -> Any:
    """Return one gradient of a part in float64."""
    from nearpeak.validation.oracle.format_limits import widened
    from nearpeak.validation.oracle.gradient_oracle import derivation
    from nearpeak.validation.oracle.sensitivity import evaluated

    gradient = _without_results(case, arrays_by_name).get(name)
    if gradient is not None:
        return gradient
    derived = derivation(*_answered(case, arrays_by_name), {})
    arrays = {key: widened(tensor) for key, tensor in derived.tensors.items()}
    return evaluated(derived.reference, arrays, case.label())[name]


def _without_results(case: Case, arrays_by_name: Arrays) -> Arrays:
    """Return the gradients by a closed form that needs no forward results, which cost as much; empty for others."""
    from nearpeak.validation.oracle.format_limits import widened
    from nearpeak.validation.oracle.gradient_oracle import backward_arguments

    closed, (draw, above) = OPS[case.op].backward_reference, _posed(case, arrays_by_name)
    if closed is None:
        return {}
    arrays = {key: widened(tensor) for key, tensor in {**draw.tensors, **above}.items()}
    try:
        return closed(arrays, **backward_arguments(draw))
    except (KeyError, NotModelledError):
        return {}


def _of_all(part: "Expected", total: Any, count: int) -> "Expected":
    """Return the expected sum of `count` parts: rounded once, with the errors of each part.

    Errors of parts grow as their sum does, and at least as the root of the count.
    """
    from nearpeak.ops.shared.torch_names import torch_format
    from nearpeak.validation.oracle.format_limits import HALF_STEP, UNIT_ROUNDOFF, rounded

    growth = float(np.linalg.norm(total) / max(float(np.linalg.norm(part.values)), 1e-300))
    inner = np.full(np.shape(total), max(growth, np.sqrt(count)) * float(np.max(part.inner, initial=0.0)))
    bound = inner + UNIT_ROUNDOFF[part.dtype] * np.abs(total) + HALF_STEP[part.dtype]
    near = rounded(total, torch_format(part.dtype))
    return replace(
        part, values=total, rounded=near, bound=bound, spread=bound, floor=bound, inner=inner, once=False, ends=()
    )
