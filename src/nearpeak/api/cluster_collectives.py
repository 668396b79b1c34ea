"""Predicted times and bounds of collectives between the nodes of a cluster."""

from dataclasses import replace
from functools import lru_cache

from nearpeak.api.questions import device_of
from nearpeak.base.identity_key import Same
from nearpeak.core.answers.bound import PROVED, Bound, Policy, Term
from nearpeak.core.systems.collective_time import CallTime, CollectiveTime, InnerTime, Inside, Part
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import COLLECTIVES, Transfer
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.collectives.group_placement import GroupPlacement, place_group, place_neighbours, place_ranks
from nearpeak.systems.collectives.tier_times import collective_time
from nearpeak.systems.collectives.tier_times import transfer_time as timed_transfer
from nearpeak.systems.collectives.traffic_bound import traffic_bound
from nearpeak.targets.clusters import cluster_of

LIBRARY_DTYPE = "fp16"
"""Format whose predicted times are those of the library; of bf16 serving frameworks' own kernels may be faster."""
_MIRRORED = {"recv": "send", "reduce": "broadcast"}
"""Kinds that take the time of another: the same bytes over the same links, the other way."""


def inside_node(target: str | Target, dtype: str = LIBRARY_DTYPE) -> Inside:
    """Return the predicted times of collectives inside a node of a target, by kind, bytes and ranks.

    >>> found = inside_node("h100_sxm")("all_reduce", 2**29, 8)
    >>> found.low_s < found.time_s < found.high_s
    True
    """
    return _inside(Same(device_of(target)), dtype)


@lru_cache(maxsize=64)
def _inside(target: "Same[Target]", dtype: str) -> Inside:
    """Return one function for each target, which keeps what it has answered."""
    from nearpeak.ops import case
    from nearpeak.prediction.case_prediction import predict_case

    width = DTYPES[dtype].bits_count / 8

    @lru_cache(maxsize=1 << 14)
    def inside(kind: str, size_bytes: float, rank_count: int) -> InnerTime:
        elements = max(round(size_bytes / width / rank_count), 1) * rank_count
        prediction = predict_case(
            case("collective", elements=elements, dtype=dtype, ranks=rank_count, kind=kind), target.held
        )
        return InnerTime(
            prediction.time_s, prediction.low_s, prediction.high_s, f"predicted: {prediction.calibration.source}"
        )

    return inside


@lru_cache(maxsize=1 << 14)  # plans hold the same transfers over and over
def transfer_time(transfer: Transfer, mesh: Mesh, cluster: Cluster, dtype: str = LIBRARY_DTYPE) -> CollectiveTime:
    """Return the time of a collective of a rank program on a cluster, nodes by their predicted operator.

    >>> cluster = cluster_of("64xh100_sxm", "ib400")
    >>> mesh = Mesh(dims=(("tp", 8), ("dp", 8)))
    >>> transfer_time(Transfer(kind="all_reduce", bytes=2**26, dim="tp"), mesh, cluster).tier
    'nvlink'
    """
    device = device_of(cluster.target)
    return timed_transfer(
        transfer, mesh, cluster.fabric, inside_node(device, dtype), device_bytes_per_s=_device_rate(device)
    )


def predict_collective(
    case: Case, target: str | Target, fabric: str, stride: int = 1, algorithm: str = ""
) -> CollectiveTime:  # fmt: skip
    """Return the time of a collective's case between the nodes of a cluster of as many devices as it has ranks.

    Args:
        fabric: as `nearpeak.targets.clusters.cluster_of` takes it.
        stride: distance of neighbouring ranks; the groups between them run at the same time.
        algorithm: the one between nodes that the library is told to take, `ring` or `tree`; by default the fastest.

    Raises:
        NotModelledError: no rule for the kind between nodes.
        SpecError: the fabric is unknown, or the case is no collective.

    >>> from nearpeak.ops import case
    >>> found = predict_collective(case("collective", elements=2**28, dtype="fp16", ranks=64), "h100_sxm", "ib400")
    >>> found.tier, found.bound_s < found.low_s < found.time_s < found.high_s
    ('ib', True)
    """
    device = device_of(target)
    kind, size_bytes = _message(case)
    placement = _placement(case, kind, collective_cluster(case, device, fabric, stride), stride)
    dtype = LIBRARY_DTYPE if placement.outer else _dtype(case)  # frameworks' own kernels stay inside a node
    modelled = collective_time(
        kind, size_bytes, placement, inside_node(device, dtype), device_bytes_per_s=_device_rate(device),
        algorithm=algorithm,
    )  # fmt: skip
    if placement.inner.fits:  # measured on devices whose links no document states
        return modelled
    least_s = bound_collective(case, device, fabric, stride=stride).time_s
    parts = modelled.parts
    if least_s > modelled.time_s:
        parts = (*parts, Part("bound", least_s - modelled.time_s, "proved lower bound"))
    ends = {name: max(getattr(modelled, name), least_s) for name in ("low_s", "time_s", "high_s")}
    return replace(modelled, bound_s=least_s, parts=parts, **ends)


def bound_collective(
    case: Case, target: str | Target, fabric: str, policy: Policy = Policy(), stride: int = 1
) -> Bound:  # fmt: skip
    """Return the bound of a collective's case on a cluster: that of the device, and a term for bytes between nodes.

    >>> from nearpeak.ops import case
    >>> bound_collective(case("collective", elements=2**28, dtype="fp16", ranks=64), "h100_sxm", "ib400").limiter
    'network'
    """
    from nearpeak.bounds.case_bound import case_bound

    device = device_of(target)
    kind, size_bytes = _message(case)
    cluster = collective_cluster(case, device, fabric, stride)
    placement = _placement(case, kind, cluster, stride)
    bound = case_bound(case, device, policy)
    traffic = traffic_bound(kind, size_bytes, placement)
    if not traffic.time_s:
        return bound
    term = Term(
        name="network", time_s=traffic.moved_bytes / traffic.bytes_per_s, status=PROVED,
        formula=f"bytes that must leave a node / rate of all its links ({traffic.tier} of {cluster.fabric.name})",
        expression="moved_bytes / network_bytes_per_s",
        quantities={"moved_bytes": traffic.moved_bytes, "network_bytes_per_s": traffic.bytes_per_s},
    )  # fmt: skip
    is_limit = term.time_s > bound.time_s
    return replace(
        bound, terms=(*bound.terms, term), time_s=max(bound.time_s, term.time_s),
        limiter=term.name if is_limit else bound.limiter,
    )  # fmt: skip


def workload_cluster(workload: Workload, target: Target, fabric: str) -> Cluster:
    """Return the cluster of as many devices as the groups of a captured workload name.

    Raises:
        SpecError: it has no collective, or one that does not say which ranks it runs among.
    """
    count = 0
    for place, call in enumerate(workload.calls):
        if call.case is not None and call.case.op == "collective":
            ranks = _group_ranks(call, str(call.case.record()["kind"]), f"{workload.name}, call {place}")
            stride = call.group.rank_stride if call.group else 0
            count = max(count, max(ranks) + max(stride, 1))  # beside the group lie those of the ranks between its own
    if not count:
        raise SpecError(f"{workload.name}: has no collective, so nothing for --fabric; leave it out")
    return cluster_of(target.name, fabric, rank_count=count)


def workload_collectives(workload: Workload, cluster: Cluster) -> tuple[CallTime, ...]:
    """Return the time of each collective of a captured workload by the ranks of its group.

    All groups of a dimension run at the same time, as ranks of one program do.

    Raises:
        SpecError: a collective does not say which ranks it runs among, or the cluster has fewer devices.
    """
    is_measured, times = bool(cluster.fabric.tiers[0].fits), []
    device = None if is_measured else device_of(cluster.target)
    for place, call in enumerate(workload.calls):
        if call.case is None or call.case.op != "collective":
            continue
        kind, size_bytes = _message(call.case)
        ranks = _group_ranks(call, kind, f"{workload.name}, call {place}")
        placement = place_ranks(ranks, cluster.fabric, cluster.device_count if len(ranks) > 1 else 0)
        dtype = LIBRARY_DTYPE if placement.outer else _dtype(call.case)
        inside = None if device is None else inside_node(device, dtype)
        rate = 0.0 if device is None else _device_rate(device)
        modelled = collective_time(kind, size_bytes, placement, inside, device_bytes_per_s=rate)
        times.append(CallTime(place, call.group.dim if call.group else "", modelled))
    return tuple(times)


def _group_ranks(call: Call, kind: str, where: str) -> tuple[int, ...]:
    """Return the ranks of a captured collective; of a message, the captured rank and the next one of its group."""
    ranks = call.group.ranks if call.group else ()
    if not ranks or call.group is None:
        raise SpecError(
            f"{where}: {kind}: the source does not say which ranks; a capture on a DeviceMesh or a process group does, "
            "and 'nearpeak predict collective … --stride' takes their distance in words"
        )
    if kind != "send":
        return ranks
    return tuple(sorted({ranks[call.group.rank], ranks[(call.group.rank + 1) % len(ranks)]}))


def collective_cluster(case: Case, target: Target, fabric: str, stride: int = 1) -> Cluster:
    """Return the cluster of as many devices as the ranks of a collective's case span."""
    if stride < 1:
        raise SpecError(f"--stride {stride}: must be at least 1, the distance of neighbouring ranks")
    return cluster_of(target.name, fabric, rank_count=dict(case.axes).get("ranks", 1) * stride)


def _message(case: Case) -> tuple[str, float]:
    """Return the kind and the bytes of the whole message of a collective's case."""
    if case.op != "collective":
        raise SpecError(f"--fabric: is for collectives, not for {case.op}; leave it out")
    stated = str(case.record()["kind"])
    kind = _MIRRORED.get(stated, stated)
    if kind not in COLLECTIVES:
        raise NotModelledError(f"collective: no rule for {stated} between nodes; {', '.join(COLLECTIVES)} have one")
    return kind, DTYPES[_dtype(case)].bytes(dict(case.axes)["elements"])


def _dtype(case: Case) -> str:
    return dict(case.dtypes)["dtype"]


def _placement(case: Case, kind: str, cluster: Cluster, stride: int) -> GroupPlacement:
    mesh = Mesh(dims=(("inner", stride), ("group", dict(case.axes)["ranks"])))
    place = place_neighbours if kind == "send" else place_group
    return place(mesh, "group", cluster.fabric)


def _device_rate(device: Target) -> float:
    """Return the rate of all links of a device; 0 where no document states one, so that no bound rests on it."""
    return sum(link.bandwidth_bytes_per_s for link in device.links.values())
