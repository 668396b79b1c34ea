"""Reconstructs cases, devices and bounds from the text that a store holds for a series."""

from functools import cache
from typing import Any

from nearpeak.core.history.stored_run import Series
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError, NotModelledError, SpecError


def case_of_series(series: Series) -> Case:
    """Return the case of a series.

    Raises:
        NotModelledError: it is a benchmark of another tool, or an operator that this nearpeak does not have.
    """
    from nearpeak.ops import OPS

    arguments: dict[str, Any] = dict(series.parameters)
    op, phase = arguments.pop("op", None), arguments.pop("phase", None)
    if not isinstance(op, str) or not isinstance(phase, str) or op not in OPS:
        raise NotModelledError(f"{series.label}: is no case of an operator, so that it has no bound")
    try:
        case = OPS[op].case(phase, **arguments)
    except SpecError as error:
        raise NotModelledError(f"{series.label}: is no case any more: {error}") from None
    if case.digest != series.case:
        raise NotModelledError(f"{series.label}: is not the case that its digest states")
    return case


@cache
def target_of_device(device: str) -> Target | None:
    """Return the device file of a device by the name that its driver gives; none where there is none."""
    from nearpeak.base.host_system import cpu_name
    from nearpeak.targets import CPU, TARGETS, target_of
    from nearpeak.targets.device_names import target_of_gpu

    if device not in TARGETS and device != cpu_name():
        return target_of_gpu(device)
    try:
        return target_of(device if device in TARGETS else CPU)
    except NearpeakError:
        return None
