"""Health of a device and its host before and after a batch: conditions that forbid measuring, changes meanwhile."""

import math
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nearpeak.errors import UnfitError
from nearpeak.farm.jobs import Device
from nearpeak.farm.process_watchdog import environment_for, watched

PROBE_S = 60.0
"""Time that a healthy device needs at most to answer."""
GPUS = ("GPU-", "MIG-")
"""How names of GPUs and of their slices begin."""
_MIB = 1 << 20


class DeadDeviceError(UnfitError):
    """The device does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Beyond what a device or host is not measured on."""

    offset_s: float = 2.0
    """Difference between this host's clock and the database's."""
    load_ratio: float = math.inf
    """Load of the host over its cores, averaged over a minute; by default it is recorded, not limited."""
    temperature_celsius: float = 85.0
    """Temperature of the device."""
    free_bytes: int = 0
    """Memory of the device that must be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was found."""

    offset_s: float
    """This host's clock minus the database's."""
    load_ratio: float
    """Load of the host over its cores."""
    foreign_pids: tuple[int, ...] = ()
    """Processes of others on the device."""
    temperature_celsius: float | None = None
    """Temperature of the device; none where it does not say."""
    free_bytes: int | None = None
    """Free memory of the device; none where it does not say."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What must not change between the arms of a comparison: driver, limits, layout, errors of the memory."""

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def look(device: Device, database_ns: int) -> Health:
    """Return the state of a device of this host.

    Raises:
        DeadDeviceError: the device does not answer.
    """
    offset_s = (time.time_ns() - database_ns) / 1e9
    load_ratio = os.getloadavg()[0] / (os.cpu_count() or 1)
    if device.name.startswith(GPUS):
        return _gpu(device.name, offset_s, load_ratio)
    from nearpeak.base.host_system import cpu_settings

    governor = dict(cpu_settings()).get("governor", "unknown")
    facts = {"kernel": platform.release(), "governor": governor}
    return Health(offset_s=offset_s, load_ratio=load_ratio, facts=facts)


def refusals(health: Health, limits: Limits, before: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return why this device cannot be measured on now; empty where it can.

    Args:
        before: facts of the comparison's last round: both arms must meet the same device.

    >>> refusals(Health(offset_s=0.0, load_ratio=0.1, foreign_pids=(7,)), Limits())
    ('processes of others are on the device: 7',)
    """
    reasons = []
    if health.foreign_pids:
        reasons.append(f"processes of others are on the device: {', '.join(map(str, health.foreign_pids[:5]))}")
    if abs(health.offset_s) > limits.offset_s:
        reasons.append(
            f"the host's clock is {health.offset_s:+.1f} s from the database's; at most {limits.offset_s:g} s"
        )
    if health.load_ratio > limits.load_ratio:
        reasons.append(f"the host's load is {health.load_ratio:.2f} per core; at most {limits.load_ratio:g}")
    heat = health.temperature_celsius
    if heat is not None and heat > limits.temperature_celsius:
        reasons.append(f"the device is {heat:.0f} degrees Celsius warm; at most {limits.temperature_celsius:g}")
    if health.free_bytes is not None and health.free_bytes < limits.free_bytes:
        reasons.append(
            f"{health.free_bytes // _MIB} MiB are free on the device; {limits.free_bytes // _MIB} are needed"
        )
    for name, old in sorted((before or {}).items()):
        if (new := health.facts.get(name)) != old:
            reasons.append(f"{name} is {'absent' if new is None else new}, was {old} before")
    return tuple(reasons)


def changes(before: Health, after: Health, limits: Limits) -> tuple[str, ...]:
    """Return what changed while a batch ran, which flags it: a fact, a process of others, heat beyond the limit."""
    return refusals(after, limits, before.facts)


def probe(device: Device) -> bool:
    """Say whether a device still answers a process of its own, after a job on it failed.

    A GPU is asked through NVML; where PyTorch is there, the process also computes on it. Nothing of other devices is
    asked but that a process still starts.
    """
    words = [sys.executable, "-P", "-m", "nearpeak.farm.device_health", device.name]
    ending = watched(words, environment=environment_for(device.name), limit_s=PROBE_S)
    return ending.verdict == "ended" and ending.code == 0


def answer(device: Device) -> None:
    """Ask a device, and compute on it where it is a GPU and PyTorch is there; raises where either fails."""
    look(device, time.time_ns())
    if not device.name.startswith(GPUS):
        return
    try:
        import torch
    except ImportError:
        return
    if torch.version.cuda and int(torch.ones(8, device="cuda").sum().item()) != 8:
        raise DeadDeviceError(f"{device.name}: computes wrongly")


def gpu_list() -> list[tuple[str, str, str]]:
    """Return UUID, model and parent board of each GPU or slice that the driver lists; empty without a driver."""
    from nearpeak.measurement.telemetry.nvml_library import devices, library
    from nearpeak.measurement.telemetry.sources import Unavailable

    try:
        nvml = library()
        boards = devices(nvml)
    except Unavailable:
        return []
    gpus = []
    for board in boards:
        slices = _slices(nvml, board.handle)
        gpus += [(uuid, board.title, board.uuid) for uuid in slices] or [(board.uuid, board.title, "")]
    return gpus


def why_no_gpu() -> str:
    """Return why the driver lists no GPU, in a few words."""
    from nearpeak.measurement.telemetry.nvml_library import devices, library
    from nearpeak.measurement.telemetry.sources import Unavailable

    try:
        devices(library())
    except Unavailable as error:
        return str(error)
    return "the driver lists none"


def _slices(nvml: Any, handle: Any) -> list[str]:
    """Return the slices of a board; none where it is whole."""
    uuids: list[str] = []
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return uuids
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                uuids.append(str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
            except nvml.NVMLError:
                continue
    except nvml.NVMLError:
        return []
    return uuids


def _gpu(uuid: str, offset_s: float, load_ratio: float) -> Health:
    from nearpeak.measurement.telemetry.nvml_library import library
    from nearpeak.measurement.telemetry.sources import Unavailable

    try:
        nvml = library()
    except Unavailable as error:
        raise DeadDeviceError(f"{uuid}: {error}") from None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        pids = tuple(sorted({process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}))
    except nvml.NVMLError as error:
        raise DeadDeviceError(f"{uuid}: does not answer: {error}") from None
    heat = _answer_text(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return Health(
        offset_s=offset_s, load_ratio=load_ratio, foreign_pids=pids, free_bytes=int(memory.free),
        temperature_celsius=None if heat == "unknown" else float(heat), facts={"device": uuid, **_facts(nvml, handle)},
    )  # fmt: skip


def _facts(nvml: Any, handle: Any) -> dict[str, str]:
    queries = {
        "driver": nvml.nvmlSystemGetDriverVersion,
        "power limit mW": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "MIG": lambda: nvml.nvmlDeviceGetMigMode(handle)[0],
        "compute mode": lambda: nvml.nvmlDeviceGetComputeMode(handle),
        "persistence": lambda: nvml.nvmlDeviceGetPersistenceMode(handle),
        "ECC errors": lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
        "remapped rows": lambda: tuple(nvml.nvmlDeviceGetRemappedRows(handle)[:2]),
        "applications clock MHz": lambda: nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM),
    }
    return {name: _answer_text(nvml, call) for name, call in queries.items()}


def _answer_text(nvml: Any, call: Any) -> str:
    """Return an answer of the driver in words, `unknown` where it refuses: that is a fact which may change too."""
    try:
        value = call()
    except nvml.NVMLError:
        return "unknown"
    return value.decode() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    answer(Device(name=sys.argv[1]))
