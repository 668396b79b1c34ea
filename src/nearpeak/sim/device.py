"""From a target to the machine that the simulator runs: multiprocessors in clusters, shared rates, costs."""

from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.predict._collective_protocols import peer_rate
from nearpeak.sim.machine import LIMITS, Limits, Machine
from nearpeak.theory.links import HOST

_GPCS = {"pascal": 6, "volta": 6, "turing": 6, "ampere": 8, "ada": 12, "hopper": 8, "blackwell": 8}
"""Clusters of multiprocessors of the largest chip of each architecture.
Source: NVIDIA's architecture whitepapers of GP100, GV100, TU104, GA100, AD102, GH100; Blackwell assumed like Hopper."""
_XCD_CUS = 38
"""Compute units of an accelerator die. Source: AMD CDNA 3 whitepaper, MI300X: 304 on 8 dies."""
_AMD = Limits(ctas_count=32, threads_count=2048, registers_count=131072, shared_bytes=64 * 1024)
"""What a compute unit holds. Source: AMD CDNA 3 instruction set guide: 64 KiB of LDS, 512 KiB of registers."""
REACHED_RATIO = 0.93
"""Most of the pin rate that memory-bound kernels reached. Source: public AIConfigurator tables, our statistic: the
largest of GEMM with few rows on H100, B200 and B300."""
L2_PORT_BYTES = 64.0
"""Bytes per clock between the cache and a multiprocessor. Source: NVIDIA A100 whitepaper (2020), L2 read bandwidth of
5120 bytes per clock over 80 slices of 64 bytes; one port of that width per multiprocessor assumed."""


def machine_of(target: Target, *, host_to_device: str = "host") -> Machine:
    """Return the machine of a target, real or edited.

    It adds no floor to kernels: what starting costs is a phase of every lowered kernel, as it was measured.

    >>> from nearpeak.targets import target_of
    >>> machine_of(target_of("h100_sxm")).gpc_sm_count
    (18, 18, 16, 16, 16, 16, 16, 16)

    Raises:
        NotModelledError: it is no GPU, or states no memory bandwidth.
        SpecError: it has no multiprocessor.
    """
    if target.kind != "gpu" or target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: the simulator runs GPUs that state a memory bandwidth")
    if target.sm_count < 1:
        raise SpecError(f"{target.name}: sm_count is {target.sm_count}; a GPU has at least one multiprocessor")
    pools = {
        "l2": L2_PORT_BYTES * target.clock_hz * target.sm_count,
        "dram": REACHED_RATIO * target.dram.bandwidth_bytes_per_s,
    }
    if any(name != HOST for name in target.links):
        pools |= dict.fromkeys(("link_in", "link_out"), peer_rate(target, pair=True))
    if host_to_device in target.links:
        pools |= dict.fromkeys(("host_in", "host_out"), target.links[host_to_device].bandwidth_bytes_per_s)
    return Machine(
        name=target.name, gpc_sm_count=_gpcs(target), limits=limits_of(target), pool_bytes_per_s=pools,
    )  # fmt: skip


def limits_of(target: Target) -> Limits:
    """Return what a multiprocessor holds; of an unknown architecture, what the newest one does."""
    return _AMD if target.vendor == "AMD" else LIMITS.get(target.architecture, LIMITS["blackwell"])


def _gpcs(target: Target) -> tuple[int, ...]:
    """Return the sizes of the clusters: pairs of multiprocessors, spread as evenly as they go."""
    count = max(1, target.sm_count // _XCD_CUS) if target.vendor == "AMD" else _GPCS.get(target.architecture, 8)
    pairs, odd = divmod(target.sm_count, 2)
    if pairs < count:
        return (target.sm_count,)
    each, more = divmod(pairs, count)
    sizes = [2 * (each + (1 if place < more else 0)) for place in range(count)]
    sizes[-1] += odd
    return tuple(sizes)
