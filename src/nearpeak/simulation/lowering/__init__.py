"""Lowerings of cases to kernels, one file per operator family; all others stream through memory."""

from dataclasses import replace
from functools import lru_cache

from nearpeak.base.registry import Registry
from nearpeak.bounds.case_bound import work_bound
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.prediction.kernel_model import USUAL, Setting
from nearpeak.simulation.engine.device_work import Kernel, Node
from nearpeak.simulation.kernel_lowering import Lowering, ps
from nearpeak.simulation.machine_from_target import limits_of

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
    return _bounded(lowerings.get((case.op, case.phase), fallback).kernels(case, target, setting), case, target)


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
    limits = limits_of(target).vector()
    waves = [
        -(
            -kernel.cta_count
            // (
                target.sm_count
                * min(room // need for room, need in zip(limits, kernel.needs.vector(), strict=True) if need)
            )
        )
        for kernel in kernels
    ]
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
