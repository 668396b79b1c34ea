"""The host machine: processor model, usable cores, frequency governor, versions of packages."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def versions(*packages: str) -> tuple[tuple[str, str], ...]:
    """Return the installed ones of the packages with their versions."""
    return tuple((name, installed) for name in packages if (installed := _version(name)))


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def cpu_name() -> str:
    """Return the processor as the operating system names it."""
    names = [
        line.split(":", 1)[1].strip()
        for line in read_text(Path("/proc/cpuinfo")).splitlines()
        if line.startswith("model name")
    ]
    return (names[0] if names else platform.processor() or platform.machine()).replace('"', "")


def usable_core_count() -> int:
    """Return how many cores this process may run on.

    >>> usable_core_count() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_settings() -> list[tuple[str, str]]:
    """Return the processor settings: cores, usable cores, frequency governor."""
    cores = [("cores", str(os.cpu_count() or 1)), ("usable_cores", str(usable_core_count()))]
    governor = read_text(_GOVERNOR)
    return [*cores, ("governor", governor)] if governor else cores


def read_text(path: Path) -> str:
    """Return the text of a file of the operating system, empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
