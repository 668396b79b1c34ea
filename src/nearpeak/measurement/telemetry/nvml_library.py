"""Shared access to NVML: library, devices, and per-field errors reported as a channel's status."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable

Call = Callable[[], float]
_MEMBERS = {
    "NVML_VALUE_TYPE_DOUBLE": "dVal", "NVML_VALUE_TYPE_UNSIGNED_INT": "uiVal", "NVML_VALUE_TYPE_UNSIGNED_LONG": "ulVal",
    "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": "ullVal", "NVML_VALUE_TYPE_SIGNED_LONG_LONG": "sllVal",
    "NVML_VALUE_TYPE_SIGNED_INT": "siVal", "NVML_VALUE_TYPE_UNSIGNED_SHORT": "usVal",
}  # fmt: skip
"""Member of the answer's union for each type (NVML API reference, nvmlValueType)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU."""

    handle: Any
    """Its NVML handle."""
    name: str
    """`gpu0`, `gpu1`, …, in NVML's order, which CUDA_VISIBLE_DEVICES does not change."""
    uuid: str
    """Its UUID."""
    title: str
    """Its name."""


def library() -> Any:
    """Return NVML, started.

    Raises:
        Unavailable: its Python package, its driver or a device is absent.
    """
    try:
        import pynvml
    except ImportError:
        raise Unavailable("nvidia-ml-py is not installed; install nearpeak[gpu]") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unavailable(f"NVML does not start: {error}") from None
    return pynvml


def devices(nvml: Any) -> list[Device]:
    """Return all GPUs.

    Raises:
        Unavailable: there are none.
    """
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpus.append(
            Device(
                handle=handle, name=f"gpu{index}", uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                title=_text(nvml.nvmlDeviceGetName(handle)),
            )
        )  # fmt: skip
    if not gpus:
        raise Unavailable("NVML sees no GPU")
    return gpus


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def checked_channel(nvml: Any, channel: Channel, call: Call) -> tuple[Channel, Call]:
    """Return `channel` with NVML's error as status where `call` fails, and the call with NaN for errors."""

    def safe() -> float:
        try:
            return call()
        except nvml.NVMLError:
            return math.nan

    try:
        call()
    except nvml.NVMLError as error:
        return replace(channel, status=f"NVML: {error}"), lambda: math.nan
    except AttributeError as error:
        return replace(channel, status=f"this nvidia-ml-py has not {error.name}"), lambda: math.nan
    return channel, safe


def clock(nvml: Any, gpu: Device, name: str, kind: int) -> tuple[Channel, Call]:
    """Return the channel of one GPU clock, with the call that reads it."""
    channel = Channel(
        name=f"{gpu.name}.{name}", unit="Hz", kind="instantaneous", resolution=1e6, device=gpu.uuid,
        meaning="clock now (NVML API reference, nvmlDeviceGetClockInfo)",
    )  # fmt: skip
    return channel, lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(gpu.handle, kind)


class Fields:
    """Several values of one GPU by one call of nvmlDeviceGetFieldValues, each with its own return code."""

    def __init__(self, nvml: Any, device: Device, wanted: Sequence[tuple[Channel, str, int, float]]) -> None:
        """Query each field once, so that an unsupported one gets its error as status.

        Args:
            wanted: channel, name of the field's constant, scope, and factor to the base unit.
        """
        self._nvml, self._handle = nvml, device.handle
        self._members = {getattr(nvml, name): member for name, member in _MEMBERS.items() if hasattr(nvml, name)}
        channels, self._fields, self._factors, self._places = [], [], [], []
        for place, (channel, constant, scope, factor) in enumerate(wanted):
            field = getattr(nvml, constant, None)
            status = f"this nvidia-ml-py has not {constant}" if field is None else self._refusal((field, scope))
            channels.append(replace(channel, status=status))
            if not status:
                self._fields.append((field, scope))
                self._factors.append(factor)
                self._places.append(place)
        self.channels = tuple(channels)

    def _refusal(self, field: tuple[int, int]) -> str:
        try:
            (value,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, [field])
        except self._nvml.NVMLError as error:
            return f"NVML: {error}"
        return "" if value.nvmlReturn == 0 else f"NVML: {self._nvml.NVMLError(value.nvmlReturn)}"

    def read(self) -> list[float]:
        """Return one value per channel, NaN for fields that the device refuses."""
        try:
            answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, self._fields) if self._fields else ()
        except self._nvml.NVMLError:
            return [math.nan] * len(self.channels)
        values = [math.nan] * len(self.channels)
        members = self._members
        for place, factor, answer in zip(self._places, self._factors, answers, strict=True):
            if answer.nvmlReturn == 0:  # its type selects the member of the union
                values[place] = getattr(answer.value, members.get(answer.valueType, ""), math.nan) * factor
        return values


class NvmlSource:
    """A telemetry source of NVML fields and calls for each GPU."""

    def __init__(
        self, name: str, most_hz: float, nvml: Any, made: Sequence[tuple[Fields, Sequence[tuple[Channel, Call]]]]
    ) -> None:
        """Keep fields and calls by GPU."""
        self.name, self.most_hz, self._nvml, self._made = name, most_hz, nvml, made
        self.channels = tuple(
            channel for fields, calls in made for channel in (*fields.channels, *(channel for channel, _ in calls))
        )

    def read(self) -> Sequence[float]:
        """Return the values of all GPUs."""
        return [value for fields, calls in self._made for value in (*fields.read(), *(call() for _, call in calls))]

    def close(self) -> None:
        """Stop NVML."""
        self._nvml.nvmlShutdown()
