"""Barrier term: elements that need a reduction over their group are read again unless the group fits on chip."""

from collections.abc import Sequence

from nearpeak.bounds.terms.memory_traffic import bandwidth_of, dram_bytes, dram_term
from nearpeak.bounds.terms.storage_capacity import storage_bytes
from nearpeak.bounds.terms.term_column import TermColumn, beyond, is_zero
from nearpeak.core.answers.bound import MODEL, PROVED, STRICT_DTYPES, Policy
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work

# When the figure is complete, at most S bytes of the group's elements are on chip; the rest of them, which their own
# outputs still need, are read a second time. Proof: docs/guide/bounds.md.


def barrier_terms(work: Work, target: Target, policy: Policy) -> Sequence[TermColumn]:
    """Charge what does not fit on chip of each group a second time, beside the compulsory bytes."""
    size_bytes, barrier = storage_bytes(target), work.barrier
    if barrier is None or size_bytes is None:
        return ()
    again_s = barrier.group_count * beyond(barrier.group_bytes, size_bytes) / bandwidth_of(target)
    if is_zero(again_s):
        return ()
    expression, quantities = dram_bytes(work, target, policy)
    twice = "group_count * max(group_bytes - storage_bytes, 0)"
    compulsory_s = dram_term(work, target, policy).time_s
    return (
        TermColumn(
            name="barrier",
            time_s=compulsory_s * (again_s > 0) + again_s,
            status=PROVED if policy.dtype in STRICT_DTYPES else MODEL,
            formula="compulsory and (group - S)+ over DRAM bandwidth",
            expression=f"({expression}) / dram_bytes_per_s + {twice} / dram_bytes_per_s",
            quantities=quantities | {
                "group_count": barrier.group_count, "group_bytes": barrier.group_bytes, "storage_bytes": size_bytes,
                "dram_bytes_per_s": bandwidth_of(target),
            },
        ),
    )  # fmt: skip
