"""Proofs that mutants of pooling operators are equivalent: windows hold the same elements or start alike."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.mutants.mutant import Mutant
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.running.implementation_run import imported_torch


def of_windows(case: Case, mutant: Mutant) -> str:
    """Permuting results of the same window changes nothing: first and last positions identify windows."""
    draw = draw_inputs(case, 0, "normal")
    if case.op not in ("max_pool", "adaptive_max_pool") or mutant.moves is None or mutant.of_gradient or draw is None:
        return ""
    shape = tuple(draw.tensors["input"].shape)
    rising = np.arange(float(np.prod(shape))).reshape(shape)
    for numbers in (rising, -rising):
        result = OPS[case.op].reference({"input": numbers}, **draw.arguments).get(mutant.where)
        if result is None:
            return ""
        values = imported_torch().as_tensor(np.array(result))
        if not bool((mutant.moves(values.clone()) == values).all()):
            return ""
    return "it moves results of the same window only: their first and their last positions are the same"


def of_ceil(case: Case, mutant: Mutant) -> str:
    """Where whole windows fill the input, rounding their number up or down gives the same number.

    Rounding down may also give one more, where ceil mode drops a last window that starts in the end padding; it is cut.
    """
    draw = draw_inputs(case, 0, "normal")
    if (mutant.row, mutant.where) not in (("choice ignored", "ceil"), ("ceil mode dropped", "")) or draw is None:
        return ""
    arrays = {name: widened(tensor) for name, tensor in draw.tensors.items()}
    results = OPS[case.op].reference(arrays, **{**draw.arguments, "ceil": False})
    shapes = [(np.shape(results[name]), expected.values.shape) for name, expected in draw.expected.items()]
    if all(shape == wanted for shape, wanted in shapes):
        return "the input holds whole windows: there are as many of them either way"
    if mutant.row == "ceil mode dropped" and all(np.all(np.array(shape) >= wanted) for shape, wanted in shapes):
        return "there are more windows, which are cut off"
    return ""


def of_reach(case: Case, mutant: Mutant) -> str:
    """Windows that hold the same elements with another padding or dilation have the same maximum."""
    draw = draw_inputs(case, 0, "normal")
    if case.op != "max_pool" or mutant.row not in _REACHES or mutant.other is None or draw is None:
        return ""
    changed = {**draw.arguments, **mutant.other}
    arrays = {name: widened(tensor) for name, tensor in draw.tensors.items()}
    shape = draw.expected["output"].values.shape
    shape_given = np.shape(OPS[case.op].reference(arrays, **changed)["output"])
    if any(have < want for have, want in zip(shape_given, shape, strict=True)):
        return ""  # missing results are filled with zeros, extra ones cut off
    axes = zip(("d", "h", "w")[5 - len(shape) :], shape[2:], strict=True)
    if all(_windows(draw.arguments, axis, count) == _windows(changed, axis, count) for axis, count in axes):
        return "every window holds the same elements either way"
    return ""


_REACHES = ("padding left out", "padding off by one", "dilation off by one")


def _windows(arguments: Mapping[str, Any], axis: str, count: int) -> list[list[int]]:
    """Return the places along `axis` that each of `count` windows holds."""
    size, step, reach, pad = (arguments[f"{kind}{axis}"] for kind in "ksdp")
    starts = (step * number - pad for number in range(count))
    return [[x for x in range(start, start + size * reach, reach) if 0 <= x < arguments[axis]] for start in starts]


def of_steps(case: Case, mutant: Mutant) -> str:
    """Random windows that start at the same positions for every sample do not depend on the samples.

    Starts change at finitely many sample values; one value is tried in every interval between them.
    """
    if case.op != "fractional_max_pool" or mutant.inputs is None or mutant.where.partition("[")[0] != "samples":
        return ""
    arguments = arguments_of(case)
    draw = draw_inputs(case, 0, "normal")
    planes = draw is not None and draw.tensors["samples"].shape[-1] == 2
    ends = mutant.where == "samples[2]" and mutant.row in _AT_THE_END
    # Of a plane the last number is the height's, of a volume the width's.
    axes = ("h" if planes else "w") if ends else "dhw"
    if all(_fixed(*(int(arguments.get(f"{part}{axis}", 1)) for part in ("", "k", "o"))) for axis in axes):
        return "windows begin at the same places for every sample, tried in each interval between those that matter"
    return ""


_AT_THE_END = ("last slice dropped", "last tile dropped", "tile counted twice")


def _fixed(extent: int, kernel: int, count: int) -> bool:
    """Return whether all windows but the last, which ends with the input, start at the same positions for every sample.

    >>> _fixed(6, 2, 3), _fixed(7, 2, 4)
    (True, False)
    """
    step = Fraction(extent - kernel, count - 1) if count > 1 else Fraction(0)
    if not step:
        return True
    ends = sorted({(whole / step - i) % 1 for i in range(count) for whole in range(extent + 1)} | {Fraction(0)})
    between = [low + (high - low) / 2 for low, high in zip(ends, [*ends[1:], Fraction(1)], strict=True)]
    begun = {tuple(int((i + s) * step) - int(s * step) for i in range(count - 1)) for s in (*ends, *between)}
    return len(begun) == 1


ARGUMENTS: tuple[Callable[[Case, Mutant], str], ...] = (of_windows, of_reach, of_ceil, of_steps)
