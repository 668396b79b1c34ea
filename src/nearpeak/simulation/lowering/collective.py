"""Collectives and messages as blocks that push data over links; host copies on a copy engine."""

import numpy as np

from nearpeak.bounds.terms.link_traffic import HOST, link_rate
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.prediction.collective.protocols import SENDING, Line, faster_line, flagged_and_plain, own_shots, sending
from nearpeak.prediction.kernel_model import Setting
from nearpeak.simulation.engine.device_work import Copy, Kernel, Node, Phase
from nearpeak.simulation.kernel_lowering import Lowering, ceilings, filling, ps
from nearpeak.simulation.machine_from_target import machine_of

RING_SM_COUNT = 16
"""Multiprocessors that the blocks of a ring hold for the whole of it. Assumption: NCCL takes up to 32 channels, fewer
within a node; expert all-to-all kernels hold 24 (DeepEP, first version) or 4 to 6 (second)."""
SHOT_SM_COUNT = 36
"""Those of an all-reduce over peer memory. Source: vLLM, custom all-reduce: 36 blocks at most."""
SEND_SM_COUNT = 2
"""Those of a message to one peer. Assumption."""
_ENGINES = {"h2d": ("copy in", "host_in"), "d2h": ("copy out", "host_out")}
"""Copy engine and pool of each direction between device and host."""


def _kernels(case: Case, target: Target, _setting: Setting) -> tuple[Node, ...]:
    coefficients = ceilings(case, target, "collective")
    size = np.array([dict(case.axes)["elements"] * DTYPES[dict(case.dtypes)["dtype"]].bits_count / 8])
    attributes = dict(case.attributes)
    if case.op == "transfer" and attributes["direction"] in _ENGINES:
        return (_copied(str(attributes["direction"]), target, float(size[0]), dict(coefficients)),)
    if case.op == "transfer" or attributes["kind"] in SENDING:
        return (_kernel(case, target, sending(target, size, coefficients), SEND_SM_COUNT),)
    kind, ranks = str(attributes["kind"]), np.array([float(dict(case.axes)["ranks"])])
    if ranks[0] <= 1:
        work, sms = work_of(case), target.sm_count
        moved = float(work.read_bytes + work.write_bytes)
        pass_s = moved / (target.dram.bandwidth_bytes_per_s or 1.0)
        phases = (
            Phase(fixed_ps=ps(coefficients["own_s"])),
            Phase(fixed_ps=ps(pass_s), pool_bytes={"dram": moved / sms}),
        )
        alone = Kernel(name=case.op, cta_count=sms, phases=phases, needs=filling(target))
        return (alone,)
    flagged, plain, excess = flagged_and_plain(target, kind, ranks, size, coefficients)
    ring = plain if excess[0] > 1 else flagged
    shots = own_shots(target, kind, dict(case.dtypes)["dtype"], ranks, size, coefficients)
    if shots is not None and (shot := faster_line(*shots)).time_s[0] < ring.time_s[0]:
        return (_kernel(case, target, shot, SHOT_SM_COUNT),)
    return (_kernel(case, target, ring, RING_SM_COUNT),)


def _kernel(case: Case, target: Target, line: Line, sm_count: int) -> Kernel:
    """Return the blocks that hold their multiprocessors while data cross the link, step after step."""
    launch_s, hops_s, fill_s, wire, wire_s, ratio = (float(column[0]) for column in line)
    machine, ctas = machine_of(target), min(sm_count, target.sm_count)
    work = work_of(case)
    pools = {"dram": float(work.read_bytes + work.write_bytes) / ctas}
    for name, way in (("link_out", "out"), ("link_in", "in")):
        crosses = any(size for port, size in work.comm_bytes.items() if port.endswith(way))
        if name in machine.pool_bytes_per_s and crosses:
            pools[name] = min(wire / ctas, wire_s / ratio * machine.pool_bytes_per_s[name] / ctas)
    phases = (
        Phase(fixed_ps=ps(launch_s)), Phase(fixed_ps=ps(hops_s + fill_s)),
        Phase(fixed_ps=ps(wire_s / ratio), pool_bytes=pools),
    )  # fmt: skip
    return Kernel(name=case.op, cta_count=ctas, phases=phases, needs=filling(target))


def _copied(direction: str, target: Target, size_bytes: float, p: dict[str, float]) -> Copy:
    """Return a transfer to or from the host: starting it, then bytes at the share of the link that is reached."""
    engine, pool = _ENGINES[direction]
    if pool not in machine_of(target).pool_bytes_per_s:
        raise NotModelledError(f"{target.name}: states no link to its host")
    time_s = p["copy_s"] + size_bytes / (p["copy_ratio"] * link_rate(target, HOST))
    return Copy(name="transfer", engine=engine, pool_bytes={pool: size_bytes, "dram": size_bytes}, fixed_ps=ps(time_s))


LOWERING = Lowering(ops=("collective", "transfer"), kernels=_kernels)
