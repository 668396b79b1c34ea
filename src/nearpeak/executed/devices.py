"""The device file of a device that a profiler names."""

from nearpeak.core.target import Target
from nearpeak.core.trace import TraceDevice
from nearpeak.errors import NearpeakError


def target_of_device(device: TraceDevice | None) -> Target | None:
    """Return the device file for a device of a trace; none where its name says nothing, or no file knows it.

    >>> target_of_device(TraceDevice(index=0, name="NVIDIA H100 80GB HBM3")).name
    'h100_sxm'
    """
    from nearpeak.measure.runners._cuda import known_target
    from nearpeak.targets import target_of

    if device is None or not device.name:
        return None
    try:
        return target_of(known_target(device.name))
    except NearpeakError:
        return None
