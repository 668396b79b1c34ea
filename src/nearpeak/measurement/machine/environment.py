"""Software and hardware environment of a CPU measurement."""

import platform
from functools import cache

from nearpeak.base.machine import cpu_name, cpu_settings, versions
from nearpeak.core.runs.measurement import Environment


@cache
def cpu_environment(*packages: str) -> Environment:
    """Return this machine's CPU and the versions of `packages`.

    >>> cpu_environment("numpy").packages[0][0]
    'nearpeak'
    """
    return Environment(
        device=cpu_name(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        packages=versions("nearpeak", *packages),
        settings=tuple(cpu_settings()),
    )
