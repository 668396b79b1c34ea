"""Expected time of a step by execution mode: how the host submits its kernels, and which of them are one."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.errors import SpecError

EAGER, GRAPH, COMPILED = "eager", "graph", "compiled"
MODES: Mapping[str, str] = {
    EAGER: "the host submits call by call, as PyTorch without a compiler; it runs ahead of the device where it can",
    GRAPH: "the same kernels, recorded once and submitted as one CUDA graph",
    COMPILED: "one CUDA graph whose neighbouring calls without products are fused, as torch.compile and servers do",
}
"""Execution modes, each with what it means."""

HOST, TRAFFIC = "host", "traffic"
GAP_CAUSES: Mapping[str, str] = {
    HOST: "the host, which submits calls more slowly than the device runs them",
    "launch": "starting kernels",
    TRAFFIC: "results that kernels hand over through memory",
    "wave tail": "multiprocessors that wait for the last tiles",
    "bandwidth": "memory below its documented rate",
    "power": "clocks that fall under load",
    "library": "kernels as libraries write them",
    "bound": "what the model gives below the bound",
}
"""Causes of expected time beyond the bound of the step, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTime:
    """The expected time of the predictable calls of a step in one execution mode."""

    mode: str
    """One of MODES."""
    time_s: float
    """Expected time: of the device, or of the host where that takes longer."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    host_s: float
    """Time that the host is busy with submitting."""
    kernel_count: int
    """Kernels that the device runs."""
    gap_s: Mapping[str, float]
    """Time beyond the bound of the whole step by cause, see GAP_CAUSES; adds up to `time_s` less that bound."""
    energy_j: float | None = None
    """Expected energy, with idle power while the device waits for the host; none where it is unknown."""

    @property
    def device_s(self) -> float:
        """Time of the device alone."""
        return self.time_s - self.gap_s.get(HOST, 0.0)


def check_mode(name: str) -> None:
    """Refuse a mode that does not exist; an empty name stands for the usual one of a workload's source."""
    if name and name not in MODES:
        raise SpecError(f"--execution {name!r}: is not one of {', '.join(MODES)}")
