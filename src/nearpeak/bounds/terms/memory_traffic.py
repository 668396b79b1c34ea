"""Terms of compulsory traffic: bytes through the DRAM pins and bytes through the last shared cache."""

from collections.abc import Sequence

from nearpeak.bounds.terms.term_column import TermColumn, beyond
from nearpeak.core.answers.bound import PROVED, Policy
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError


def dram_term(work: Work, target: Target, policy: Policy, case_count: int = 1) -> TermColumn:
    """Charge what must cross the pins: cold inputs, and outputs beyond what a cache may keep.

    Args:
        case_count: cases whose sum `work` is; each has the cache to itself, as the sum of their own terms is at least
            that of their sum beyond as many caches.
    """
    cache_bytes, credit = target.l2.capacity_bytes, policy.output_credit
    cache_bytes = None if cache_bytes is None else cache_bytes * case_count
    writes = beyond(work.write_bytes, cache_bytes) if credit else work.write_bytes
    reads = work.read_bytes if policy.cold_inputs else beyond(work.read_bytes, cache_bytes)
    moved = f"{'read' if policy.cold_inputs else '(read - L2)+'} + {'(write - L2)+' if credit else 'write'}"
    expression, quantities = dram_bytes(work, target, policy, case_count)
    return TermColumn(
        name="dram", time_s=(reads + writes) / bandwidth_of(target), status=PROVED,
        formula=f"({moved}) / DRAM bandwidth", expression=f"({expression}) / dram_bytes_per_s",
        quantities=quantities | {"dram_bytes_per_s": bandwidth_of(target)},
    )  # fmt: skip


def dram_bytes(work: Work, target: Target, policy: Policy, case_count: int = 1) -> tuple[str, dict[str, object]]:
    """Return the expression of the bytes that must cross the pins, and the figures that it names."""
    cache_bytes = target.l2.capacity_bytes
    cache, times = ("l2_bytes", {}) if case_count == 1 else ("cases_count * l2_bytes", {"cases_count": case_count})
    sides = {"read_bytes": (work.read_bytes, not policy.cold_inputs),
             "write_bytes": (work.write_bytes, policy.output_credit)}  # fmt: skip
    parts: list[str] = []
    quantities: dict[str, object] = {}
    for name, (count, credited) in sides.items():
        if credited and cache_bytes is None:
            continue  # a cache of unknown size could hold it all
        parts.append(f"max({name} - {cache}, 0)" if credited else name)
        quantities |= {name: count} | ({"l2_bytes": cache_bytes, **times} if credited else {})
    return " + ".join(parts) or "0", quantities


def l2_terms(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge all distinct bytes to the last shared cache, where its bandwidth is documented."""
    rate = target.l2.bandwidth_bytes_per_s
    if not rate:
        return ()
    return (
        TermColumn(
            name="l2", time_s=(work.read_bytes + work.write_bytes) / rate, status=PROVED,
            formula="(read + write) / L2 bandwidth", expression="(read_bytes + write_bytes) / l2_bytes_per_s",
            quantities={"read_bytes": work.read_bytes, "write_bytes": work.write_bytes, "l2_bytes_per_s": rate},
        ),
    )  # fmt: skip


def bandwidth_of(target: Target) -> float:
    """Return the memory bandwidth, refused by name where no document states it."""
    if target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: no DRAM bandwidth is documented, so no bound on memory traffic")
    return target.dram.bandwidth_bytes_per_s
