"""Screen of measurements before a fit: rows in a wrong unit or of another device are rejected."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.bounds.bound_table import answered_table
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.prediction.calibration.below_bound import IMPOSSIBLE, kinds_below
from nearpeak.prediction.calibration.case_times import first_columns, times_of
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.samples import Samples, without
from nearpeak.prediction.kernel_model import KernelModel, Setting
from nearpeak.prediction.model_choice import model_of
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.units import show

UNIT_STEP = 1000.0
"""Factor between neighbouring units of time: seconds, milliseconds, microseconds, nanoseconds."""
FAR_RATIO = math.sqrt(UNIT_STEP)
"""Factor off the expected time from which another unit is nearer, in logarithms."""
MOST_SHARE = 0.5
"""Share of a group's rows from which on it is the table that is wrong, not some of its rows."""
LARGE_RATIO = 0.5
"""Mean error from which on a fit must be better than its start: times by half or twice have no coefficients near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedSamples:
    """Samples that are fit to be fitted."""

    samples: Samples
    """Those that can be of the device, the other rows set aside; all rows of the kinds that are refused."""
    refused: Mapping[str, NearpeakError]
    """Reason for the rejection of a whole kind of case, by its name, e.g. `gemm.bf16`."""


def screened_samples(samples: Samples, target: Target, setting: Setting) -> ScreenedSamples:
    """Return the samples less the rows that cannot be measurements of `target`, and the kinds that are refused whole.

    A row is rejected that is faster than its bound for any algorithm and warm caches, or FAR_RATIO off both the
    expected time and the median deviation of its kind.

    >>> from nearpeak.prediction.kernel_model import USUAL
    >>> from nearpeak.prediction.calibration.samples import samples_of
    >>> from nearpeak.targets import target_of
    >>> table = {"op": "gemm", "dtype": "bf16", "m": [4096, 8192, 8192], "n": 8192, "k": 8192, "time_ms": [1, 2, 0.002]}
    >>> [one.row for one in screened_samples(samples_of(table), target_of("h100_sxm"), USUAL).samples.set_aside]
    [3]
    """
    reasons, refused = dict[int, str](), dict[str, NearpeakError]()
    bound_s = answered_table(samples.table, target, Policy()).bound_s
    impossible = {i for i, kind in kinds_below(samples, target, bound_s) if kind == IMPOSSIBLE}
    for name, (model, places) in sorted(_kinds(samples).items()):
        try:
            cases = [samples.cases[i] for i in places]
            start = calibration_for(target, model, first_columns(cases[0]))
            expected_s = times_of(cases, model, target, setting)(coefficients_of(start))
        except NearpeakError:
            continue  # the fit meets the same and says so
        try:
            ratios = samples.measured_s[places] / expected_s
            if not 1 / FAR_RATIO <= (off := _median(ratios)) <= FAR_RATIO:  # nearer to another unit than to their own
                text = f"{name}: its {len(ratios)} times are in the median {_times(off)} than expected"
                raise _wrong_table(text, samples, target)
            reasons |= _wrong_rows(name, places, ratios, impossible, bound_s, samples, target)
        except SpecError as error:
            refused[name] = error
    return ScreenedSamples(samples=without(samples, reasons, samples.time_name or "time"), refused=refused)


def check_fit(name: str, before_ratio: float, fitted_ratio: float, off: Any, target: Target) -> None:
    """Refuse coefficients that are no better than those before where these are far off.

    Args:
        off: measured over predicted times after the fit.
    """
    if fitted_ratio >= max(LARGE_RATIO, before_ratio):
        factor = float(np.exp(np.median(np.abs(np.log(off)))))
        raise SpecError(
            f"calibrate: {name}: no coefficients give these times: mean error {100 * before_ratio:.0f} % before the "
            f"fit, {100 * fitted_ratio:.0f} % after it, a factor of {factor:.3g} in the median; check the unit of "
            f"the times, and whether the device is {target.name}"
        )


def _kinds(samples: Samples) -> dict[str, tuple[KernelModel, list[int]]]:
    """Return the model and the positions of the rows of each kind of case that has a model."""
    rows: dict[str, tuple[KernelModel, list[int]]] = {}
    known: dict[Any, tuple[str, KernelModel] | None] = {}
    for i, case in enumerate(samples.cases):
        key = (case.op, case.phase, case.dtypes)
        if key not in known:
            try:
                model = model_of(case.op, case.phase)
                known[key] = f"{model.name}.{model.groups(case.op, dict(case.dtypes))[0]}", model
            except NotModelledError:
                known[key] = None
        kind = known[key]
        if kind is not None:
            rows.setdefault(kind[0], (kind[1], []))[1].append(i)
    return rows


def _wrong_rows(
    name: str, places: Sequence[int], ratios: Any, impossible: set[int], bound_s: Any, samples: Samples, target: Target
) -> dict[int, str]:
    """Return the reasons for implausible rows; a table with too many of them is refused."""
    reasons, usual = {}, _median(ratios)
    for i, ratio in zip(places, ratios.tolist(), strict=True):
        apart = (ratio, ratio / usual)
        if i in impossible:
            reasons[i] = f"{show(samples.measured_s[i], 's')} is below the bound of {show(bound_s[i], 's')}"
        elif min(apart) > FAR_RATIO or max(apart) < 1 / FAR_RATIO:
            reasons[i] = f"{show(samples.measured_s[i], 's')} is {_times(ratio)} than expected, unlike most rows"
    below = [i for i in places if i in impossible]
    if len(reasons) >= MOST_SHARE * len(places) and below:
        factor = _median(bound_s[below] / samples.measured_s[below])
        raise _wrong_table(
            f"{name}: {len(below)} of {len(places)} times are below what nothing can beat, in the median by a factor "
            f"of {factor:.3g}", samples, target,
        )  # fmt: skip
    if len(reasons) >= MOST_SHARE * len(places):
        text = f"{name}: {len(reasons)} of {len(places)} times are {FAR_RATIO:.0f} times off the others"
        raise _wrong_table(text, samples, target)
    return reasons


def _wrong_table(text: str, samples: Samples, target: Target) -> SpecError:
    column = f"the unit of {samples.time_name}" if samples.time_name else "the unit of the times"
    return SpecError(f"calibrate: {text}; check {column}, and whether the device is {target.name}")


def _times(ratio: float) -> str:
    """Return a ratio in words.

    >>> _times(0.0009), _times(40.3)
    ('1,111 times shorter', '40 times longer')
    """
    return f"{ratio:,.0f} times longer" if ratio >= 1 else f"{1 / ratio:,.0f} times shorter"


def _median(ratios: Any) -> float:
    return float(np.exp(np.median(np.log(ratios))))
