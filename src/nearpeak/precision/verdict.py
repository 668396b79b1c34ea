"""Verdict on mixed precision before it is tried, with its reasons, and the realised part of the expected gain."""

from collections.abc import Iterator
from dataclasses import replace
from math import log

from nearpeak.core.answers.mixed_precision import BASELINES, LEAST_SPEED_UP, MixedPrecision, PrecisionVerdict
from nearpeak.core.traces.executed_precision import Realised
from nearpeak.core.traces.executed_run import Executed
from nearpeak.traces.executed.execution_comparison import step_interval
from nearpeak.units import show

_COMPILED = "compiled code ran, and the expectation is one of eager operators: compare traces of eager steps"
_LARGE = 0.25
"""Part of a step from which on casts, or memory, count as a reason."""


def verdict_of(device: MixedPrecision, eager: MixedPrecision) -> PrecisionVerdict:
    """Return whether autocast will pay on the device alone, and where the host adds time to every operator.

    The speed-up against PyTorch's default flags decides, as that is what runs before anybody changes anything.

    Args:
        device: expected times without time added per operator: a graph, or a host that stays ahead.
        eager: the same with the time that an eager host takes for each operator. It issues ahead, as PyTorch's does.
    """
    alone, slowed = device.speed_up_ratio(), eager.ahead_ratio()
    if alone < LEAST_SPEED_UP:
        verdict = "does not pay"
    elif slowed < LEAST_SPEED_UP:
        verdict = "pays only in a graph"
    else:
        verdict = "pays"
    return PrecisionVerdict(
        verdict=verdict, speed_up_ratio=alone, eager_ratio=slowed, serial_ratio=eager.speed_up_ratio(),
        reasons=tuple(_reasons(device, eager)),
    )  # fmt: skip


def _reasons(device: MixedPrecision, eager: MixedPrecision) -> Iterator[str]:
    if device.cast_ratio > _LARGE:
        yield f"{device.cast_count} casts take {device.cast_ratio:.0%} of the lowered step"
    yield from _host(device, eager)
    yield from _trap(device)
    if device.fused_s < device.lowered_s / LEAST_SPEED_UP:
        ratio = device.baseline_s["default"] / device.fused_s
        yield (
            f"a compiler that puts casts into its own kernels leaves {device.kept_cast_count} of"
            f" {device.cast_count}: {ratio:.2f} times as fast"
        )
    if device.converted_s is not None and device.converted_s < device.lowered_s / LEAST_SPEED_UP:
        ratio = device.baseline_s["default"] / device.converted_s
        yield f"a model converted as a whole (.half(), .bfloat16()) needs no casts: {ratio:.2f} times as fast"
    if device.memory_bound_ratio > 1 - _LARGE:
        yield f"memory limits {device.memory_bound_ratio:.0%} of the fp32 step: at most 2 times as fast there"
    if device.scaler_s:
        yield f"scaling the loss and checking gradients takes {device.scaler_s / device.lowered_s:.0%}, and one wait"


def _host(device: MixedPrecision, eager: MixedPrecision) -> Iterator[str]:
    """Say where the lowered step waits for its host, which autocast gives more to do."""
    added, host_s = device.lowered_count - device.call_count, eager.fixed_s * device.lowered_count
    if added <= 0 or eager.ahead_ratio() * LEAST_SPEED_UP >= device.speed_up_ratio():
        return
    if host_s > device.lowered_s:
        yield (
            f"the lowered step waits for its host: {device.lowered_count} operators, {added} more than as written, take"
            f" it {show(host_s, 's')}, and the device {show(device.lowered_s, 's')}"
        )
    else:
        yield f"autocast adds {added} operators, each of which costs the host time"


def _trap(device: MixedPrecision) -> Iterator[str]:
    """Say what TF32 changes about the baseline, where it changes something."""
    single, default, tf32 = (device.speed_up_ratio(name) for name in ("fp32", "default", "tf32"))
    if single > default * LEAST_SPEED_UP:
        yield f"convolutions run in TF32 already: {default:.2f} against what runs, {single:.2f} against true fp32"
    if default > tf32 * LEAST_SPEED_UP:
        yield f"allowing TF32 for matrix products gives {default / tf32:.2f} of it without autocast; {tf32:.2f} is left"


def realised_of(
    expected: MixedPrecision,
    baseline: Executed,
    lowered: Executed,
    modes: tuple[str, str],
    *,
    compiled: bool = False,
) -> Realised:
    """Return how much of the expected speed-up two traces show, against the fp32 that the baseline ran.

    Args:
        baseline: steps without autocast.
        lowered: steps with it.
        modes: precision of the two, as `precision_of` tells it; empty where settings and kernels disagree.
        compiled: whether either ran compiled code, of which nothing is expected here.
    """
    which = modes[0] if modes[0] in BASELINES else ""
    wanted = expected.speed_up_ratio(which) if which else None
    low, high = step_interval(lowered, baseline)
    steps = [executed.mean_step_s for executed in (baseline, lowered)]
    ratio = steps[0] / steps[1] if min(steps) > 0 else None
    reason = _COMPILED if compiled else _withheld(wanted, modes, baseline, lowered)
    realised = Realised(
        baseline=which, expected_ratio=wanted, speed_up_ratio=ratio, low_ratio=low, high_ratio=high, reason=reason,
        realised_ratio=None, log_ratio=None,
    )  # fmt: skip
    if reason or wanted is None or ratio is None:
        return realised
    return replace(realised, realised_ratio=(ratio - 1) / (wanted - 1), log_ratio=log(ratio) / log(wanted))


def _withheld(wanted: float | None, modes: tuple[str, str], baseline: Executed, lowered: Executed) -> str:
    """Return why the realised share is unknown; empty where it is known."""
    if wanted is None:
        return "the baseline's fp32 mode is unknown: neither kernel names nor settings state it"
    if modes[1] not in ("autocast", "converted"):
        return "the trace does not run in 16 bits"
    if wanted < LEAST_SPEED_UP:
        return f"the expected speed-up of {wanted:.2f} is too small for a realised share"
    if not (baseline.steps_found and lowered.steps_found):
        return "steps are not marked in both: whole windows are no steps"
    if baseline.format != lowered.format:
        return f"{baseline.format} and {lowered.format} take their times differently"
    return ""
