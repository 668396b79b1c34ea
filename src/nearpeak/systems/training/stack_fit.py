"""Fit of a stack's two host times to measured step times."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

from nearpeak.core.systems.stack import CONFIRMED_RATIO, Stack, StackFit
from nearpeak.errors import SpecError

StepTimes = Callable[[Stack], Sequence[float]]
"""Gives the predicted step times of the measured plans under a stack."""
_GRID_RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Launch times that are tried first, over that of the start."""
_GRID_FIXED_S = (0.0, 1e-3, 4e-3, 16e-3)
"""Times per micro-batch that are tried first."""
_LAUNCH_RATIOS = (1.25, 1.1, 1.03)
"""Steps of the search from the best of them, ever finer."""
_MOST_LAUNCH_S, _LEAST_LAUNCH_S = 200e-6, 1e-6
_MICRO_BATCH_STEPS_S = (1e-3, 0.25e-3, 0.1e-3)
_MOST_MICRO_BATCH_S = 0.1


def fit_stack(stack: Stack, measured_s: Sequence[float], step_times: StepTimes, source: str) -> StackFit:
    """Return `stack` with the launch time and the time per micro-batch that meet the measured step times best.

    The mean of |predicted / measured - 1| is minimised on a coarse grid, then from the best of it step by step. One
    measurement fits the launch time alone; where a graph launches all kernels, the time per micro-batch alone is
    fitted. The stack is confirmed where these times meet more steps than there are times, or it met them
    or was confirmed before.

    Raises:
        SpecError: no measurements, or one that is no time.

    >>> start = Stack(name="mine", title="Mine", launch_s=5e-6, source="prior")
    >>> def steps(stack): return [1000 * stack.launch_s + 4 * stack.micro_batch_s, 500 * stack.launch_s]
    >>> found = fit_stack(start, [0.028, 0.010], steps, "two runs")
    >>> round(found.stack.launch_s * 1e6), round(found.stack.micro_batch_s * 1e3)
    (20, 2)
    """
    if not measured_s or min(measured_s) <= 0:
        raise SpecError(f"fit of stack {stack.name}: give at least one measured step time above 0 s")

    def error(candidate: Stack) -> float:
        predicted = zip(step_times(candidate), measured_s, strict=True)
        return fmean(abs(predicted_s / time_s - 1) for predicted_s, time_s in predicted)

    fits_micro_batch = len(measured_s) > 1 or stack.is_captured
    before = error(stack)
    tried = [stack] if stack.is_captured else [_moved(stack, ratio * stack.launch_s) for ratio in _GRID_RATIOS]
    if fits_micro_batch:
        tried = [
            _moved(scaled, scaled.launch_s, fixed_s)
            for scaled in tried
            for fixed_s in (stack.micro_batch_s, *_GRID_FIXED_S)
        ]
    best, fitted = min(((error(candidate), candidate) for candidate in tried), key=lambda pair: pair[0])
    for ratio, step_s in zip(_LAUNCH_RATIOS, _MICRO_BATCH_STEPS_S, strict=True):
        while True:
            start = best
            for candidate in _neighbours(fitted, ratio, step_s, fits_micro_batch):
                candidate_error = error(candidate)
                if candidate_error < best - 1e-6:
                    best, fitted = candidate_error, candidate
            if best >= start:
                break
    has_more_steps = len(measured_s) > fits_micro_batch + (not stack.is_captured)  # as many host times meet any steps
    is_tested = has_more_steps or before <= CONFIRMED_RATIO or stack.is_confirmed
    errors = [abs(step_s / time_s - 1) for step_s, time_s in zip(step_times(fitted), measured_s, strict=True)]
    return StackFit(
        stack=replace(fitted, is_confirmed=is_tested and best <= CONFIRMED_RATIO, source=source),
        row_count=len(measured_s), before_ratio=before,
        after_ratio=best, median_ratio=median(errors), fits_micro_batch=fits_micro_batch,
    )  # fmt: skip


def _neighbours(stack: Stack, ratio: float, step_s: float, fits_micro_batch: bool) -> list[Stack]:
    """Return stacks whose host times differ by one step of the search, both at once included."""
    launches = [stack.launch_s]
    if not stack.is_captured:
        launches += [stack.launch_s * ratio, stack.launch_s / ratio]
    fixed = [stack.micro_batch_s]
    if fits_micro_batch:
        fixed += [stack.micro_batch_s + step_s, stack.micro_batch_s - step_s]
    return [_moved(stack, launch_s, fixed_s) for launch_s in launches for fixed_s in fixed]


def _moved(stack: Stack, launch_s: float, fixed_s: float | None = None) -> Stack:
    """Return a stack with other host times, within what hosts take."""
    return replace(
        stack,
        launch_s=stack.launch_s if stack.is_captured else min(max(launch_s, _LEAST_LAUNCH_S), _MOST_LAUNCH_S),
        micro_batch_s=stack.micro_batch_s if fixed_s is None else min(max(fixed_s, 0.0), _MOST_MICRO_BATCH_S),
    )
