"""Host time of submitting work to a GPU, by part, as ranges of public profiles."""

from typing import NamedTuple

from nearpeak.core.work.target import Target


class HostCost(NamedTuple):
    """A cost of the host with the range in which profiles found it."""

    low_s: float
    """Least."""
    usual_s: float
    """Middle of the range."""
    high_s: float
    """Most."""


FRAMEWORK = HostCost(3e-6, 5.5e-6, 8e-6)
"""An eager framework on one call: Python, dispatcher, allocator. Calls that launch nothing, such as views, cost it too.
Source: ranges of public profiles of PyTorch and CUDA, 2023 to 2025; of no device, as for the three below."""
LIBRARY = HostCost(1e-6, 2e-6, 3e-6)
"""A library on choosing the kernel of a call."""
LAUNCH = HostCost(2e-6, 3.5e-6, 5e-6)
"""The driver on launching a kernel."""
GRAPH_LAUNCH = HostCost(5e-6, 7.5e-6, 10e-6)
"""The driver on launching a graph, whatever its size."""


ARM_BOARD_RATIO = 5.0
"""Host time of a call on the Arm cores of a Jetson over that of the hosts behind the profiles above, cores at 1.7 GHz.
Fitted, not documented: the fastest of 226 published PyTorch figures of neural operators on an Orin Nano
(joshua41057/neural-operator-jetson-benchmark, MIT) is 1.26 ms for DeepONet's 17 calls, about 6.7 times as much; its
kernels and one synchronisation are part of it. Hosts of other boards are taken as this one."""
ARM_BOARD_HZ = 1.728e9
"""Clock of those cores."""


def host_ratio(target: Target) -> float:
    """Return the host time of a call on a target's host over that of the profiles; 1 for hosts of servers.

    >>> from nearpeak.targets import target_of
    >>> host_ratio(target_of("h100_sxm")), host_ratio(target_of("jetson_orin_nano:25W"))
    (1.0, 5.0)
    """
    return ARM_BOARD_RATIO if target.name.startswith("jetson_") else 1.0


def eager_cost(call_count: int, kernel_count: int, view_count: int, target: Target | None = None) -> HostCost:
    """Return the host time of a step that is submitted call by call.

    Args:
        call_count: calls that launch kernels.
        view_count: calls that launch none.
        target: device whose host it is; that of a server without one.

    >>> cost = eager_cost(call_count=2, kernel_count=3, view_count=1)
    >>> f"{cost.usual_s * 1e6:.1f} µs"
    '31.0 µs'
    """
    sums = (
        framework * (call_count + view_count) + library * call_count + launch * kernel_count
        for framework, library, launch in zip(FRAMEWORK, LIBRARY, LAUNCH, strict=True)
    )
    ratio = 1.0 if target is None else host_ratio(target)
    return HostCost(*(ratio * total_s for total_s in sums))
