"""Inverse bounds: least bandwidth, rates, clock, link and storage with which a device could reach a given time."""

import math
from collections.abc import Callable, Iterable

from nearpeak.bounds.case_bound import case_bound, work_bound
from nearpeak.bounds.step.liveness import occupancy_of
from nearpeak.bounds.step.step_bound import least_work, step_bound
from nearpeak.bounds.terms.link_traffic import link_rate, moved_bytes
from nearpeak.bounds.terms.memory_traffic import bandwidth_of
from nearpeak.bounds.terms.storage_capacity import moved_words
from nearpeak.bounds.terms.term_column import beyond
from nearpeak.bounds.terms.unit_rates import matrix_rate, vector_rate
from nearpeak.core.answers.bound import ASSUMPTIONS, MODEL, PROVED, Policy
from nearpeak.core.answers.provision import FrontierPoint, Need, Provision
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import label_of, work_of

SMALLEST_STORAGE_BYTES = 2**16
LARGEST_STORAGE_BYTES = 2**40
"""Ends of the frontier, which doubles the storage from point to point."""
SAVED_RATIO = 0.99
"""Traffic over that of the point before it, above which a point is left out."""
_PINS = ("dram", "capacity", "barrier")


def provision_of(
    subject: Case | Workload, within_s: float, target: Target | None = None, policy: Policy = Policy()
) -> Provision:
    """Return what a device must have at least so that `subject` could be done within `within_s` seconds.

    Every need is necessary on its own; for a case or a captured step all proved ones together are what its bound
    asks for. For a list of cases they are what the sum of the work asks for.

    Raises:
        SpecError: the time is not above 0 and finite.

    >>> from nearpeak.ops import case
    >>> provision = provision_of(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), 1e-3)
    >>> [(need.resource, need.least) for need in provision.needs][1]
    ('products of bf16', 137438953472000.0)
    """
    if not 0 < within_s < math.inf:
        raise SpecError(f"provision: the time is {within_s} s; it must be above 0 and finite")
    work = (
        work_of(subject, policy.algorithm)
        if isinstance(subject, Case)
        else least_work(subject, policy.algorithm)[1].simplified
    )
    bound = None
    if target is not None:
        bound = (
            case_bound(subject, target, policy) if isinstance(subject, Case) else step_bound(subject, target, policy)
        )
    needs = [*_memory(work, within_s, target, policy), *_products(work, within_s, target, policy)]
    needs += [*_elementwise(work, within_s, target), *_rest(subject, work, within_s, target, policy)]
    return Provision(
        subject=label_of(subject) if isinstance(subject, Case) else subject.name,
        within_s=within_s,
        target=None if target is None else target.name,
        bound_s=None if bound is None else bound.time_s,
        limiter=None if bound is None else bound.limiter,
        needs=tuple(sorted(needs, key=lambda need: -(need.factor_ratio or 0.0))),
        frontier=tuple(_frontier(work, within_s, policy)),
        least_storage_bytes=None if target is None else _least_storage(work, within_s, target, policy),
        policy=policy,
        assumptions=tuple(ASSUMPTIONS) if bound is None else bound.assumptions,
        uncovered=subject.uncovered_counts() if isinstance(subject, Workload) else {},
    )


def traffic_bytes(work: Work, size_bytes: int, policy: Policy) -> float:
    """Return the bytes that must cross the memory's pins when the chip can hold `size_bytes`, results among them."""
    writes = beyond(work.write_bytes, size_bytes) if policy.output_credit else work.write_bytes
    reads = work.read_bytes if policy.cold_inputs else beyond(work.read_bytes, size_bytes)
    again = work.barrier.group_count * beyond(work.barrier.group_bytes, size_bytes) if work.barrier else 0
    if work.contraction is None:
        return float(reads + writes + again)
    bits = work.contraction.word_bits_count
    return max(float(reads + writes + again), bits / 8 * float(moved_words(work.contraction, size_bytes * 8 / bits)))


def _memory(work: Work, within_s: float, target: Target | None, policy: Policy) -> Iterable[Need]:
    """Give the bandwidth of memory, with the base target's storage or with as much as one likes, and of the cache."""
    least, here = traffic_bytes(work, LARGEST_STORAGE_BYTES, policy) / within_s, None
    if target is not None:
        here = bandwidth_of(target)
        terms = work_bound(work, target, policy).terms
        least = max(term.time_s for term in terms if term.name in _PINS) * here / within_s
    yield Need(
        resource="DRAM bandwidth", unit="B/s", least=least, status=PROVED, here=here,
        expression="bytes that must cross the pins, with the target's storage or with any / time",
    )  # fmt: skip
    if target is not None and target.l2.bandwidth_bytes_per_s:
        yield Need(
            resource="L2 bandwidth", unit="B/s", least=(work.read_bytes + work.write_bytes) / within_s, status=PROVED,
            expression="(read + write) / time", here=target.l2.bandwidth_bytes_per_s,
        )  # fmt: skip


def _products(work: Work, within_s: float, target: Target | None, policy: Policy) -> Iterable[Need]:
    """Give the rate of products by format; on a base target, formats keep their relative rates and share the time."""
    flop = {kind.partition(".")[2]: count for kind, count in work.flop.items() if kind.startswith("matrix.") and count}
    rates = {} if target is None else {dtype: matrix_rate(target, dtype, policy.dtype)[1] for dtype in flop}
    total_s = sum(count / rates[dtype] for dtype, count in flop.items()) if rates else 0.0
    for dtype, count in flop.items():
        alone, together = count / within_s, rates.get(dtype, 0.0) * total_s / within_s
        shared = " , sharing the time with the other formats" if together > alone * (1 + 1e-9) else ""
        yield Need(
            resource=f"products of {dtype}", unit="FLOP/s", least=max(alone, together), status=PROVED,
            expression=f"FLOP / time{shared}".replace(" ,", ","), here=rates.get(dtype),
        )  # fmt: skip


def _elementwise(work: Work, within_s: float, target: Target | None) -> Iterable[Need]:
    """Give the rates of element-wise arithmetic and special functions: models, as other units can do parts of them."""
    for kind, count in work.flop.items():
        family, _, dtype = kind.partition(".")
        if family == "vector" and count:
            yield Need(
                resource=f"vector work on {dtype}", unit="FLOP/s", least=count / within_s, status=MODEL,
                expression="FLOP / time",
                here=_documented(lambda device, name: vector_rate(device, name)[1], target, dtype),
            )  # fmt: skip
    if work.special_count:
        rate = None if target is None else target.special_per_clock
        yield Need(
            resource="special functions", unit="OP/s", least=work.special_count / within_s, status=MODEL,
            expression="evaluations / time, none of them by polynomials",
            here=None if target is None or rate is None else rate * target.sm_count * target.clock_hz,
        )  # fmt: skip


def _documented(rate: Callable[[Target, str], float], target: Target | None, name: str) -> float | None:
    """Return a rate of the base target; none where it has no such unit or link."""
    try:
        return None if target is None else rate(target, name)
    except NotModelledError:
        return None


def _rest(
    subject: Case | Workload, work: Work, within_s: float, target: Target | None, policy: Policy
) -> Iterable[Need]:
    """Give clock, link and memory capacity, where the work asks for any."""
    if work.chain is not None and work.chain.step_count:
        yield Need(
            resource="clock", unit="Hz", least=work.chain.step_count / within_s, status=PROVED,
            expression="dependent steps / time", here=None if target is None else target.clock_hz,
        )  # fmt: skip
    for name, size_bytes in moved_bytes(work, policy):
        yield Need(
            resource="links" if name == "link" else "host link", unit="B/s", least=size_bytes / within_s, status=PROVED,
            expression="larger of bytes in and out / time, in one direction",
            here=_documented(link_rate, target, name),
        )  # fmt: skip
    held = work.read_bytes + work.write_bytes
    if isinstance(subject, Workload) and subject.buffers:
        held = occupancy_of(subject).use.peak_bytes
    yield Need(
        resource="memory capacity", unit="B", least=float(held), status=MODEL,
        expression="most that is held at one time, in the captured order",
        here=None if target is None else target.dram.capacity_bytes,
    )  # fmt: skip


def _frontier(work: Work, within_s: float, policy: Policy) -> Iterable[FrontierPoint]:
    """Give storage against bandwidth, up to the first storage beyond which more saves nothing."""
    least, size, shown = traffic_bytes(work, LARGEST_STORAGE_BYTES, policy), SMALLEST_STORAGE_BYTES, math.inf
    while size <= LARGEST_STORAGE_BYTES:
        moved = traffic_bytes(work, size, policy)
        if moved <= shown * SAVED_RATIO or moved <= least < shown:
            yield FrontierPoint(storage_bytes=size, dram_bytes=math.ceil(moved), dram_bytes_per_s=moved / within_s)
            shown = moved
        if moved <= least:
            return
        size *= 2


def _least_storage(work: Work, within_s: float, target: Target, policy: Policy) -> int | None:
    """Return the least storage whose traffic the target's memory moves in time: traffic only falls with storage."""
    budget = (target.dram.bandwidth_bytes_per_s or 0.0) * within_s
    low, high = 0, LARGEST_STORAGE_BYTES
    if traffic_bytes(work, high, policy) > budget:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if traffic_bytes(work, max(middle, 1), policy) <= budget else (middle + 1, high)
    return low
