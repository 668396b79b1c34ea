"""Simulated machine of a target: clusters of multiprocessors, shared rates, costs."""

from nearpeak.bounds.terms.link_traffic import HOST
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.collective.protocols import peer_rate
from nearpeak.prediction.host_costs import FRAMEWORK, GRAPH_LAUNCH, LAUNCH, LIBRARY
from nearpeak.simulation.machine import LIMITS, Costs, Limits, Machine
from nearpeak.simulation.power_governor import Power

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


QUEUE_COUNT = 8
"""Hardware queues that streams of a context are mapped to. Source: CUDA C++ programming guide,
`CUDA_DEVICE_MAX_CONNECTIONS`: 8 unless it is set, 32 at most."""
_PS_PER_S = 1e12
HOST_COSTS = {
    "launch_ps": round(LAUNCH.usual_s * _PS_PER_S), "submit_ps": 2_000_000,
    "graph_ps": round(GRAPH_LAUNCH.usual_s * _PS_PER_S), "graph_node_ps": 0,
}  # fmt: skip
"""What a host spends on a launch and a graph, and about 2 µs until a device that waits begins. Source of these: middle
of the ranges of public profiles of PyTorch and CUDA, 2023 to 2025; of no device."""
FRAMEWORK_PS = round((FRAMEWORK.usual_s + LIBRARY.usual_s) * _PS_PER_S)
"""What an eager framework and its libraries spend on a call before the driver's launch."""


def machine_of(target: Target, *, power: Power | None = None) -> Machine:
    """Return the machine of a target, real or edited.

    It adds no floor to kernels: what starting costs is a phase of every lowered kernel, as it was measured.

    Args:
        power: what it draws; none leaves energy out.

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
    pools = memory_rates(target)
    if any(name != HOST for name in target.links):
        pools |= dict.fromkeys(("link_in", "link_out"), peer_rate(target, pair=True))
    if HOST in target.links:
        pools |= dict.fromkeys(("host_in", "host_out"), target.links[HOST].bandwidth_bytes_per_s)
    return Machine(
        name=target.name, gpc_sm_count=_gpcs(target), limits=limits_of(target), pool_bytes_per_s=pools, power=power,
        queue_count=QUEUE_COUNT, costs=Costs(state_bytes_per_s=pools["dram"], **HOST_COSTS),
    )  # fmt: skip


def memory_rates(target: Target) -> dict[str, float]:
    """Return the rates of cache and memory that all multiprocessors share, bytes per second.

    >>> from nearpeak.targets import target_of
    >>> round(memory_rates(target_of("h100_sxm"))["dram"] / 1e12, 2)
    3.12
    """
    return {
        "l2": L2_PORT_BYTES * target.clock_hz * target.sm_count,
        "dram": REACHED_RATIO * (target.dram.bandwidth_bytes_per_s or 1.0),
    }


def limits_of(target: Target) -> Limits:
    """Return the limits of a multiprocessor; for an unknown architecture, those of the newest."""
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
