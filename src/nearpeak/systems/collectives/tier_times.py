"""Collectives timed over the tiers of a fabric: nodes by a function, networks by protocols and documented rates."""

from dataclasses import replace
from math import ceil, log2
from statistics import NormalDist
from typing import NamedTuple

from nearpeak.core.systems.collective_time import NOTHING, CollectiveTime, InnerTime, Inside, Part
from nearpeak.core.systems.fabric import Fabric, Tier
from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import Transfer
from nearpeak.errors import NotModelledError
from nearpeak.systems.collectives.group_placement import (
    GroupPlacement,
    Level,
    place_group,
    place_neighbours,
)
from nearpeak.systems.collectives.library_protocols import BATCH_COUNT, NCCL, RINGS, Protocol, protocols_of, tree_limit
from nearpeak.systems.collectives.traffic import check_transfer, exchanged_bytes, ring_bytes, ring_steps
from nearpeak.systems.collectives.traffic_bound import traffic_bound

HOP_RATIO = (0.5, 2.0)
"""Measured over modelled time of hops between nodes, an assumption: no table of measured small messages ships."""
WIRE_RATIO = (0.9, 1.45)
"""Measured over modelled time of bytes between nodes, from public results (benchmarks/collectives_between_nodes.py)."""
DOCUMENTED_RATIO = (0.7, 1.6)
"""Measured over modelled time inside a node where documents alone state it, an assumption."""


LEAST_BYTES = 4
"""Bytes for each rank of the smallest message, whose time is that of starting a collective."""


def transfer_time(
    transfer: Transfer, mesh: Mesh, fabric: Fabric, inside: Inside | None = None, *, device_bytes_per_s: float = 0.0
) -> CollectiveTime:
    """Return the time of a collective of a rank program while all groups of its dimension run it.

    A send is that between the two neighbours that are farthest apart.

    Args:
        inside: times inside a node; without it, or where it refuses, those that documents state.
        device_bytes_per_s: rate of all links of a device, for the bound inside a node; 0 leaves it out.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> fabric = cluster_of("64xh100_sxm", "ib400").fabric
    >>> mesh = Mesh(dims=(("tp", 8), ("dp", 8)))
    >>> found = transfer_time(Transfer(kind="all_reduce", bytes=2**30, dim="dp"), mesh, fabric)
    >>> found.tier, found.limiter, round(2 * 7 / 8 * 2**30 / found.time_s / 1e9)
    ('ib', 'ib', 47)
    """
    place = place_neighbours if transfer.kind == "send" else place_group
    placement = place(mesh, transfer.dim, fabric)
    if transfer.copy_count > 1 and placement.outer:
        return _forwarded(transfer, placement, inside, device_bytes_per_s)
    return collective_time(transfer.kind, transfer.bytes, placement, inside, device_bytes_per_s=device_bytes_per_s)


def _forwarded(
    transfer: Transfer, placement: GroupPlacement, inside: Inside | None, device_bytes_per_s: float
) -> CollectiveTime:  # fmt: skip
    """Return an exchange whose rows cross the network once for each node and are handed on inside it.

    Of k copies of a row that are spread evenly over p nodes, p (1 - (1 - 1/p)^k) cross. Inside the nodes all copies are
    handed on at the same time.

    Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.2; deepseek-ai/DeepEP, README, normal kernels.
    """
    parts, copies = placement.outer[0].part_count, transfer.copy_count
    share = parts * (1 - (1 - 1 / parts) ** copies) / copies
    between = collective_time(
        transfer.kind, share * transfer.bytes, placement, inside, device_bytes_per_s=device_bytes_per_s
    )
    within = _inner_time(transfer.kind, transfer.bytes, placement.inner_rank_count, placement, inside)
    further_s = max(within.time_s - between.time_s, 0.0)
    parts_s = (*between.parts, Part("inside", further_s, within.ground)) if further_s else between.parts
    return replace(
        between, time_s=between.time_s + further_s, low_s=max(between.low_s, within.low_s),
        high_s=max(between.high_s, within.high_s), parts=parts_s,
        limiter=placement.inner.name if further_s else between.limiter,
    )  # fmt: skip


def collective_time(
    kind: str, size_bytes: float, placement: GroupPlacement, inside: Inside | None = None, *, spread_s: float = 0.0,
    device_bytes_per_s: float = 0.0, algorithm: str = "",
) -> CollectiveTime:  # fmt: skip
    """Return the time of a collective of a group on a fabric.

    Bytes inside nodes and between them flow at the same time, so that the slower tier counts; hops add up. Of the
    protocols between nodes the fastest is taken. Messages of all_to_all leave each device over its own link; in other
    collectives the members inside a node send over all their links.

    Args:
        size_bytes: size of the whole message, as in `Transfer`.
        algorithm: the one between nodes that the library is told to take (NCCL_ALGO), `ring` or `tree`.
        spread_s: standard deviation of the times at which ranks arrive; the wait for the last is then a part.

    >>> from nearpeak.systems.collectives.group_placement import place_ranks
    >>> from nearpeak.targets.clusters import cluster_of
    >>> collective_time("all_reduce", 2**30, place_ranks([3], cluster_of("8xh100_sxm").fabric)).time_s
    0.0
    """
    check_transfer(kind, size_bytes, placement.rank_count)
    if placement.rank_count == 1:
        return NOTHING
    bound_s = traffic_bound(kind, size_bytes, placement, device_bytes_per_s).time_s
    inner_count = placement.inner_rank_count
    inner = _inner_time(kind, size_bytes, inner_count, placement, inside)
    if not placement.outer:
        part = Part("inside", inner.time_s, inner.ground)
        return _completed(placement, bound_s, (inner.low_s, inner.high_s), placement.inner.name, "", [part], spread_s)
    start = _inner_time(kind, LEAST_BYTES * inner_count, inner_count, placement, inside)
    # What the node's own time says of its bytes, for the share of them that a group of several nodes moves.
    inner_ratio = ring_bytes(kind, 1.0, placement.rank_count) / (ring_bytes(kind, 1.0, inner_count) or 1.0)
    if kind in ("all_to_all", "send"):
        inner_ratio = inner_count / placement.rank_count
    inner_wire_s = max(inner.time_s - start.time_s, 0.0) * inner_ratio
    added = all(level.tier.reduces for level in placement.outer)
    protocols = protocols_of(kind, is_added_by_switches=added, algorithm=algorithm)
    plans = [_plan(kind, size_bytes, placement, protocol, start, inner_wire_s, inner) for protocol in protocols]
    best = min(plans, key=lambda plan: sum(part.time_s for part in plan.parts))
    inner_ratios = (inner.low_s / inner.time_s, inner.high_s / inner.time_s) if inner.time_s else (1.0, 1.0)
    low_s, high_s = (
        end_s + HOP_RATIO[end] * best.hops_s + max(inner_ratios[end] * inner_wire_s, WIRE_RATIO[end] * best.wire_s)
        for end, end_s in enumerate((start.low_s, start.high_s))
    )
    return _completed(placement, bound_s, (low_s, high_s), best.limiter, best.algorithm, best.parts, spread_s)


def straggler_wait_s(rank_count: int, spread_s: float) -> float:
    """Return the mean wait for the last of `rank_count` ranks whose times spread normally, below s sqrt(2 ln n).

    Source: Blom 1958, Statistical Estimates and Transformed Beta-Variables: the largest of n normal values.

    >>> straggler_wait_s(1, 0.01), round(straggler_wait_s(1024, 0.01), 4)
    (0.0, 0.0323)
    """
    if rank_count < 2:
        return 0.0
    return spread_s * NormalDist().inv_cdf((rank_count - 0.375) / (rank_count + 0.25))


class _Plan(NamedTuple):
    parts: list[Part]
    algorithm: str
    limiter: str
    hops_s: float
    wire_s: float


def _plan(
    kind: str, size_bytes: float, placement: GroupPlacement, protocol: Protocol, start: InnerTime,
    inner_wire_s: float, inner: InnerTime,
) -> _Plan:  # fmt: skip
    """Return the parts of a collective that one protocol takes between nodes."""
    hops_s, wires = _hops_s(kind, placement, protocol), []
    for level in placement.outer:
        wire_s = _wire_s(kind, size_bytes, placement.rank_count, level, protocol)
        if protocol.algorithm == "tree" and not placement.inner.reduces:
            wire_s = max(wire_s, size_bytes / tree_limit(protocol, level.part_count))
        wires.append((wire_s / (protocol.reached_ratio * level.tier.reached_ratio), level.tier))
    wire_s, tier = max(wires, key=lambda pair: pair[0])
    first_s = start.time_s if placement.inner_rank_count > 1 else protocol.start_s
    ground = start.ground if placement.inner_rank_count > 1 else NCCL
    is_inner = inner_wire_s >= wire_s
    parts = [Part("start", first_s, ground), Part("hops", hops_s, f"{NCCL}; {tier.source}")]
    if is_inner:
        parts.append(Part("wire", inner_wire_s, inner.ground))
    else:
        parts.append(Part("wire", wire_s, tier.source))
    limiter = placement.inner.name if is_inner else tier.name
    return _Plan(parts, f"{protocol.algorithm} {protocol.name}", limiter, hops_s, wire_s)


def _wire_s(kind: str, size_bytes: float, rank_count: int, level: Level, protocol: Protocol) -> float:
    """Return the time of the bytes that cross the border of one part of the group at the full rate of its links."""
    if kind == "all_to_all":
        return exchanged_bytes(size_bytes, rank_count, level.member_count) / level.device_bytes_per_s
    if kind == "send":
        return size_bytes / level.device_bytes_per_s
    if protocol.algorithm == "ring":
        return ring_bytes(kind, size_bytes, rank_count) / level.group_bytes_per_s
    # Of two trees each part is a leaf in one and passes on half the message of two children in the other; of two parts
    # each passes on the whole once. Switches take the whole message and return it.
    passes = 2.0 if protocol.algorithm == "tree" and level.part_count > 2 else 1.0
    return passes * size_bytes / level.group_bytes_per_s


def _hops_s(kind: str, placement: GroupPlacement, protocol: Protocol) -> float:
    """Return the time of the hops that follow each other: between nodes, and of a ring inside all nodes but one."""
    hops_s = 0.0
    for level in placement.outer:
        count = ring_steps(kind, level.part_count)
        if kind == "all_to_all":
            count = ceil((placement.rank_count - level.member_count) / BATCH_COUNT)
        elif protocol.algorithm != "ring":
            count = 2 if protocol.algorithm == "switch" else 2 * ceil(log2(level.part_count))
        hops_s += count * (level.tier.latency_s + protocol.hop_s)
    if protocol.algorithm != "ring" or kind in ("send", "all_to_all"):
        return hops_s
    further = placement.rank_count - placement.outer[0].part_count - (placement.inner_rank_count - 1)
    return hops_s + ring_steps(kind, 2) * max(further, 0) * (placement.inner.latency_s + protocol.inner_hop_s)


def _inner_time(
    kind: str, size_bytes: float, rank_count: int, placement: GroupPlacement, inside: Inside | None
) -> InnerTime:  # fmt: skip
    """Return the time inside one node: measured on this fabric, predicted, or what documents state."""
    if rank_count == 1:
        return InnerTime(0.0, 0.0, 0.0, "")
    if placement.inner.fits:
        return _fitted_time(kind, size_bytes, rank_count, placement.inner)
    if inside is not None:
        try:
            return inside(kind, size_bytes, rank_count)
        except NotModelledError:
            pass
    tier, steps = placement.inner, ring_steps(kind, rank_count)
    rate = tier.bandwidth_bytes_per_s * tier.reached_ratio / (tier.shared_by * tier.oversubscription)
    wire_s = ring_bytes(kind, size_bytes, rank_count) / rate
    time_s = min(
        protocol.start_s + steps * (tier.latency_s + protocol.inner_hop_s) + wire_s / protocol.reached_ratio
        for protocol in RINGS
    )
    return InnerTime(time_s, DOCUMENTED_RATIO[0] * time_s, DOCUMENTED_RATIO[1] * time_s, f"{NCCL}; {tier.source}")


def _fitted_time(kind: str, size_bytes: float, rank_count: int, tier: Tier) -> InnerTime:
    """Return the time by the fits of a tier: those of as many ranks, else of the nearest, steps and bytes scaled.

    Raises:
        NotModelledError: the kind was not measured.
    """
    fits = [fit for fit in tier.fits if fit.kind == kind]
    if not fits:
        measured = ", ".join(sorted({fit.kind for fit in tier.fits}))
        raise NotModelledError(
            f"tier {tier.name}: {kind} was not measured; {measured} were ('nearpeak calibrate fabric')"
        )
    nearest = min(fits, key=lambda fit: (abs(fit.rank_count - rank_count), fit.rank_count)).rank_count
    steps = ring_steps(kind, rank_count) / ring_steps(kind, nearest)
    moved = ring_bytes(kind, size_bytes, rank_count) / ring_bytes(kind, 1.0, nearest)
    best = min(
        (fit for fit in fits if fit.rank_count == nearest),
        key=lambda fit: fit.base_s * steps + moved / fit.bytes_per_s,
    )
    time_s = best.base_s * steps + moved / best.bytes_per_s
    ground = f"measured among {nearest} ranks, {tier.source}"
    return InnerTime(time_s, best.low_ratio * time_s, best.high_ratio * time_s, ground)


def _completed(
    placement: GroupPlacement, bound_s: float, ends: tuple[float, float], limiter: str, algorithm: str,
    parts: list[Part], spread_s: float,
) -> CollectiveTime:  # fmt: skip
    """Return the time with the wait for the last rank, never below the bound."""
    time_s = sum(part.time_s for part in parts)
    if time_s < bound_s:
        parts = [*parts, Part("bound", bound_s - time_s, "proved lower bound")]
        time_s = bound_s
    wait_s = straggler_wait_s(placement.rank_count, spread_s)
    if wait_s:
        parts = [*parts, Part("wait", wait_s, "largest of normally distributed arrivals")]
    return CollectiveTime(
        time_s=time_s + wait_s, low_s=max(min(ends[0], time_s), bound_s), high_s=max(ends[1], time_s) + 2 * wait_s,
        bound_s=bound_s, tier=placement.levels[-1].tier.name, limiter=limiter, algorithm=algorithm,
        parts=tuple(part for part in parts if part.time_s > 0),
    )  # fmt: skip
