"""Distinct calls of a step with their call counts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.work.case import Case
from nearpeak.core.work.storage_unions import union_bytes
from nearpeak.core.work.workload import Call, Use

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
MODULE_DEPTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctCall:
    """Calls of one case that differ in their layer only."""

    case: Case
    """Their computation."""
    phase: str
    """Phase of the step."""
    module: str
    """Pattern of the paths of their modules."""
    read_bytes: int | None
    """Distinct bytes that each reads of storages; none where it names none."""
    write_bytes: int | None
    """The same of what it writes."""
    source: str
    """Origin of the first of them."""
    call_count: int
    """Total number of calls."""


def distinct_calls(calls: tuple[Call, ...]) -> tuple[DistinctCall, ...]:
    """Return the distinct calls that have a case, in order of first occurrence.

    They are counted once; captures do that with the step that they return.
    """
    return _counted(Same(calls))


@lru_cache(maxsize=8)
def _counted(same: "Same[tuple[Call, ...]]") -> tuple[DistinctCall, ...]:
    counts: dict[tuple[int, str, str, int | None, int | None], int] = {}
    first: dict[tuple[int, str, str, int | None, int | None], tuple[Case, str]] = {}
    for call in same.held:
        if call.case is None:
            continue
        reads, writes = touched_bytes(call.reads), touched_bytes(call.writes)
        key = (id(call.case), call.phase, module_pattern(call.module), reads, writes)
        counts[key] = counts.get(key, 0) + call.call_count
        first.setdefault(key, (call.case, call.source))
    return tuple(
        DistinctCall(
            case=case, phase=key[1], module=key[2], read_bytes=key[3], write_bytes=key[4], source=source,
            call_count=counts[key],
        )
        for key, (case, source) in first.items()
    )  # fmt: skip


@lru_cache(maxsize=1 << 14)
def module_pattern(path: str) -> str:
    """Return a module path with layer numbers as `*`, so that equal layers fall together.

    >>> module_pattern("model.layers.17.mlp.gate_proj")
    'model.layers.*.mlp.gate_proj'
    """
    return ".".join(_NUMBER.sub("*", path).split(".")[:MODULE_DEPTH]) or "(top level)"


def touched_bytes(uses: Sequence[Use]) -> int | None:
    """Return the distinct bytes that the uses of one call touch; none where there are none."""
    if not uses:
        return None
    if len(uses) == 1:
        return uses[0].bytes
    if len({use.buffer for use in uses}) == len(uses):
        return sum([use.bytes for use in uses])
    storages: dict[int, list[Use]] = {}
    for use in uses:
        storages.setdefault(use.buffer, []).append(use)
    return sum(union_bytes(storage_uses) for storage_uses in storages.values())
