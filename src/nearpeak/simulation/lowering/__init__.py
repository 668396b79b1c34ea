"""Lowerings of cases to kernels, one file per operator family; all others stream through memory."""

from dataclasses import replace
from functools import lru_cache, partial

from nearpeak.base.registry import Registry
from nearpeak.bounds.case_bound import work_bound
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.prediction.kernel_model import USUAL, Setting
from nearpeak.simulation.engine.device_work import Kernel, Node
from nearpeak.simulation.kernel_lowering import Lowering, fewer_counts, ps, reduced, wider_counts
from nearpeak.simulation.machine_from_target import limits_of, memory_rates
from nearpeak.simulation.machine_units import PS_PER_S

__all__ = ["LOWERINGS", "kernels_of"]


LOWERINGS: "Registry[Lowering]" = Registry.of_modules(
    "LOWERING", kind="lowering", package=__name__, file=__file__, group="nearpeak.lowerings"
)


def kernels_of(case: Case, target: Target, setting: Setting = USUAL) -> tuple[Node, ...]:
    """Return the kernels and copies of a case in sequence; none where it does nothing.

    Raises:
        NotModelledError: the device states no rate, or nothing was measured that is like it.
    """
    lowerings, fallback = _by_op()
    lowering = lowerings.get((case.op, case.phase), fallback)
    nodes = lowering.kernels(case, target, setting)
    # What has fewer blocks than there are multiprocessors shares neither memory's rate nor the board's power with those
    # that idle, while measured rates are of shares of all: it may do better with some of these left out.
    blocks = {node.cta_count for node in nodes if isinstance(node, Kernel) and 1 < node.cta_count < target.sm_count}
    counts = {int(count / ratio) for count in blocks for ratio in lowering.filling_ratios}
    if lowering.filling_ratios:
        counts |= {round(count) for count in wider_counts(target)}
        counts |= set(fewer_counts(target) if blocks else ())
    ways = [[node] for node in nodes]
    for count in sorted(count for count in counts if 0 < count < target.sm_count):
        fewer = lowering.kernels(case, reduced(target, count), setting)
        for same, node in zip(ways, fewer if len(fewer) == len(nodes) else (), strict=False):
            if isinstance(node, Kernel) and node.cta_count <= count * _each_count(node, target):  # all start at once
                same.append(node)
    return _bounded(tuple(min(same, key=partial(_alone_ps, target)) for same in ways), case, target)


def _alone_ps(target: Target, node: Node) -> float:
    """Return the time of a kernel alone: waves of blocks, and bytes through shared pools."""
    if not isinstance(node, Kernel):
        return float(node.fixed_ps)
    rates, whole = memory_rates(target), 0.0
    slots = target.sm_count * _each_count(node, target)
    for phase in node.phases:
        moved = {pool: size for pool, size in phase.pool_bytes.items() if pool in rates}
        pools_s = (min(node.cta_count, slots) * size / rates[pool] for pool, size in moved.items())
        longest_s = max((*phase.pipe_s.values(), *pools_s), default=0.0)
        whole += max(phase.fixed_ps, longest_s * PS_PER_S)
    return whole * -(-node.cta_count // slots)


def _each_count(kernel: Kernel, target: Target) -> int:
    """Return the blocks of a kernel that one multiprocessor holds."""
    rooms = zip(limits_of(target).vector(), kernel.needs.vector(), strict=True)
    return min(room // need for room, need in rooms if need)


def _bounded(nodes: tuple[Node, ...], case: Case, target: Target) -> tuple[Node, ...]:
    """Return kernels of which none beats the documented rates: what was measured of other sizes may promise more.

    The longest phase of them is stretched by what the whole lacks to the bound of the case.
    """
    kernels = [node for node in nodes if isinstance(node, Kernel)]
    if len(kernels) < max(len(nodes), 1):
        return nodes  # copies run at the rate of their link
    try:
        least_ps = ps(work_bound(_work(case), target).time_s)
    except NotModelledError:
        return nodes
    waves = [-(-kernel.cta_count // (target.sm_count * _each_count(kernel, target))) for kernel in kernels]
    lacks = least_ps - sum(
        count * sum(phase.fixed_ps for phase in kernel.phases) for count, kernel in zip(waves, kernels, strict=True)
    )
    if lacks <= 0:
        return nodes
    place = max(
        range(len(kernels)), key=lambda index: waves[index] * max(phase.fixed_ps for phase in kernels[index].phases)
    )
    phases = list(kernels[place].phases)
    longest = max(range(len(phases)), key=lambda index: phases[index].fixed_ps)
    phases[longest] = replace(phases[longest], fixed_ps=phases[longest].fixed_ps + lacks // waves[place] + 1)
    kernels[place] = replace(kernels[place], phases=tuple(phases))
    return tuple(kernels)


@lru_cache(maxsize=4096)
def _work(case: Case) -> Work:
    """Return the least work of a case; sweeps ask for it on a thousand devices."""
    return work_of(case)


@lru_cache
def _by_op() -> tuple[dict[tuple[str, str], Lowering], Lowering]:
    files = [LOWERINGS[name] for name in LOWERINGS]
    return {(op, phase): lowering for lowering in files for op in lowering.ops for phase in lowering.phases}, next(
        lowering for lowering in files if not lowering.ops
    )
