"""Host time of submitting work to a GPU, by part, as ranges of public profiles."""

from typing import NamedTuple


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


def eager_cost(call_count: int, kernel_count: int, view_count: int) -> HostCost:
    """Return the host time of a step that is submitted call by call.

    Args:
        call_count: calls that launch kernels.
        view_count: calls that launch none.

    >>> cost = eager_cost(call_count=2, kernel_count=3, view_count=1)
    >>> f"{cost.usual_s * 1e6:.1f} µs"
    '31.0 µs'
    """
    sums = (
        framework * (call_count + view_count) + library * call_count + launch * kernel_count
        for framework, library, launch in zip(FRAMEWORK, LIBRARY, LAUNCH, strict=True)
    )
    return HostCost(*sums)
