"""Spot check of a case too large to validate: a seeded sample of a timed call's results against float64."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.measurement.large_cases.independent_axes import MORE, Arrays, Free, free_axes, is_large, resized, spread
from nearpeak.measurement.large_cases.summed_gradients import added_up
from nearpeak.measurement.large_cases.timed_output_check import reverified, timed_result
from nearpeak.ops import OPS

MOST_COUNT, LEAST_COUNT = 4096, 64
"""Most positions along an axis of a sample, and the count to which all axes are cut before any is cut further."""
MOST_TIMES = 16
"""Factor by which a sample of two positions may exceed the limits."""


def spot_checked(
    case: Case, inputs: Arrays, outputs: Arrays, upstream: Arrays | None = None
) -> tuple[CheckResult | None, str]:
    """Return the comparison of a sample of `outputs` with float64, and its description; none without a sample.

    The first and last position along each cut axis are in the sample. Each gradient has its own sample.

    Args:
        upstream: the upstream gradients, for gradients.
    """
    if case.phase == "forward":
        return _sampled(case, inputs, outputs, "")
    if upstream is None:
        return None, ""
    checks = {name: _sampled(case, {**inputs, **upstream}, {name: array}, name) for name, array in outputs.items()}
    left = [name for name, (result, _) in checks.items() if result is None]
    checks |= {name: added_up(case, inputs, upstream, name, outputs[name]) for name in left}
    seen = {name: (result, description) for name, (result, description) in checks.items() if result is not None}
    description = "; ".join(f"{name}: {description}" for name, (_, description) in seen.items())
    results = sorted((result for result, _ in seen.values()), key=lambda array: not array.failed)
    return (results[0] if results else None), description


def _sampled(case: Case, inputs: Arrays, outputs: Arrays, output: str) -> tuple[CheckResult | None, str]:
    open_, made = _explicit(case)
    positions = positions_of(open_, output)
    if not positions:
        return None, ""
    extents, sampled_outputs, sampled_inputs = dict(case.axes), dict(outputs), dict(inputs)
    at = {
        axis: spread(chosen, times)
        for free, chosen in positions.items()
        for axis, times in zip(free.axes, free.each_count, strict=True)
    }
    sampled_inputs |= {name: make(at.get(axis, np.arange(extents[axis]))) for name, (axis, make) in made.items()}
    for free, chosen in positions.items():
        extent = extents[free.axes[0]]
        for name, dimension, times in free.outputs:
            shape, axis = (
                np.shape(sampled_outputs[name]) if name in sampled_outputs else (),
                free.axes[free.each_count.index(times)],
            )
            if len(shape) <= dimension or shape[dimension] != extent * times:
                reason = f"a timed call gives {name}{list(shape)}; dimension {dimension} is {axis}, {extent * times}"
                return CheckResult(check="V11", status="SHAPE_FAIL", reason=reason), ""
            sampled_outputs[name] = np.take(np.asarray(sampled_outputs[name]), spread(chosen, times), axis=dimension)
        for name, dimension, times in free.inputs:
            if name not in made:
                sampled_inputs[name] = np.take(np.asarray(sampled_inputs[name]), spread(chosen, times), axis=dimension)
    above = {name: array for name, array in sampled_inputs.items() if name.startswith("grad_")} if output else None
    try:
        cut = _cut(open_, {free: len(chosen) for free, chosen in positions.items()})
        result = timed_result(cut, sampled_inputs, sampled_outputs, above)
    except SpecError:  # the case states more distinct inputs than the sample has
        return None, ""
    description = ", ".join(f"{len(at)} of {extents[free.axes[0]]} {free.axes[0]}" for free, at in positions.items())
    return _in_place(result, positions), description


def _explicit(case: Case) -> tuple[Case, Mapping[str, tuple[str, Callable[[Any], Any]]]]:
    """Return the case with position-dependent values, such as masks, as inputs, and functions that make them."""
    explicit = OPS[case.op].explicit
    explicit_inputs = None if explicit is None else explicit(**forward_arguments(case))
    if explicit_inputs is None:
        return case, {}
    known = {**dict(case.attributes), **explicit_inputs[0]}
    names = OPS[case.op].signatures[case.phase].names()
    return OPS[case.op].case(
        case.phase, **{name: value for name, value in known.items() if name in names}
    ), explicit_inputs[1]


def _in_place(result: CheckResult | None, positions: Mapping[Free, Any]) -> CheckResult | None:
    """Return the result with the offset of its worst element among all results."""
    worst = result.worst if result is not None else None
    if result is None or worst is None:
        return result
    offset = list(worst.offset)
    for free, at in positions.items():
        for name, dimension, times in free.outputs:
            if name == worst.output:
                offset[dimension] = int(spread(at, times)[offset[dimension]])
    there = replace(worst, offset=tuple(offset))
    return replace(result, worst=there, reason=result.reason.replace(str(list(worst.offset)), str(offset)))


def judged_again(
    record: Validation | None, case: Case, prepared: Prepared, seen: tuple[int, Arrays], inputs: Arrays, *,
    runner: str, why: str,
) -> tuple[Validation | None, str]:  # fmt: skip
    """Return the record updated with the check of a timed call's outputs, and a remark for cases without validation.

    Args:
        record: of the validation, none where it did not run.
        seen: number of the timed set of inputs, and its outputs.
        inputs: that set.
        why: reason why validation did not run.
    """
    if record is not None:
        return reverified(record, case, prepared, seen, inputs), ""
    if not why:
        return None, ""
    note, (number, outputs) = f"not validated: {why}", seen
    if outputs.keys() & inputs.keys():
        inputs, outputs = _stepped(prepared, number, inputs, outputs)
    result, sample = spot_checked(case, inputs, outputs, prepared.upstream[number] if prepared.upstream else None)
    if result is None:
        return None, note
    if not result.failed:
        return None, f"{note}; a sample of a timed call's results agrees with float64 ({sample})"
    from nearpeak.validation import recorded_as_timed

    return recorded_as_timed(case, runner, result), note


def _stepped(prepared: Prepared, number: int, inputs: Arrays, outputs: Arrays) -> tuple[Arrays, Arrays]:
    """Return inputs and outputs of one further call of an operator that updates its inputs in place.

    Equal outputs show that the inputs have not changed.
    """
    before = {name: np.array(array) for name, array in outputs.items()}
    after = prepared.outputs(prepared.runs[number]())
    if all(np.array_equal(array, after[name], equal_nan=True) for name, array in before.items()):
        return inputs, after
    return {**inputs, **{name: array for name, array in before.items() if name in inputs}}, after


def positions_of(case: Case, output: str = "") -> dict[Free, Any]:
    """Return the sampled positions along each axis; empty where no sample is small enough.

    >>> from nearpeak.ops import case
    >>> large = positions_of(case("gemm", m=2048, n=2048, k=2048, dtype="fp32"))
    >>> {free.axes: (len(at), int(at[0]), int(at[-1])) for free, at in large.items()}
    {('m',): (256, 0, 2047), ('n',): (256, 0, 2047)}
    """
    extents = dict(case.axes)
    counts = {free: min(extents[free.axes[0]], MOST_COUNT) for free in free_axes(case, output)}
    for least, allowed in ((LEAST_COUNT, 1), (2, MORE)):
        while counts and is_large(_cut(case, counts), allowed):
            longest = max(counts, key=lambda free: counts[free])
            if counts[longest] // 2 < least:
                break
            counts[longest] //= 2
    if not counts or is_large(_cut(case, counts), MOST_TIMES):
        return {}
    generator = np.random.default_rng(random.Random(case.digest + output).getrandbits(64))
    positions: dict[Free, Any] = {}
    for free, count in counts.items():
        extent = extents[free.axes[0]]
        positions[free] = np.arange(extent)
        if count < extent:
            inner = 1 + generator.choice(extent - 2, count - 2, replace=False)
            positions[free] = np.sort(np.concatenate([[0, extent - 1], inner]))
    return positions


def _cut(case: Case, counts: Mapping[Free, int]) -> Case:
    return resized(
        case,
        {
            axis: count * times
            for free, count in counts.items()
            for axis, times in zip(free.axes, free.each_count, strict=True)
        },
    )
