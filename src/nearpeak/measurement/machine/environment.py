"""Shared base of the CPU runners: environment, memory limit and host timer."""

import platform
from functools import cache

from nearpeak.base.host_system import cpu_name, cpu_settings, versions
from nearpeak.case_tensors.random_inputs import too_large
from nearpeak.core.runs.measurement import Environment, Timing
from nearpeak.core.runs.runner_protocols import Backend, Timer
from nearpeak.core.work.case import Case
from nearpeak.measurement.timing.clocks import HostTimer
from nearpeak.targets import CPU


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


class OnCpu(Backend):
    """Base class of runners on this machine's CPU."""

    target = CPU
    packages: tuple[str, ...] = ("torch", "numpy")
    """Packages of the environment."""

    def __init__(self, argument: str, timing: Timing) -> None:
        """Keep how to time."""
        del argument
        self._timing = timing

    def refusal(self, case: Case) -> str:
        """Return that the tensors are too large; empty when they are not."""
        return too_large(case)

    def timer(self) -> Timer:
        """Return the clocks of the host."""
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.swept_bytes)

    def environment(self) -> Environment:
        """Return this machine and the runner's packages."""
        return cpu_environment(*self.packages)
