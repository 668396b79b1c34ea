"""Details of kernels beyond their times: blocks, step phase, hardware counters, profiler rules."""

import re
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from nearpeak.core.traces.executed_run import NOTHING, KernelRule, QueueItem
from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import Trace
from nearpeak.traces.executed.host_causes import Cover

_OPTIMIZER = re.compile(r"^Optimizer\.step#|^optimizer[._ ]?step\b", re.IGNORECASE)
_COUNTER = re.compile(r"^[a-z0-9]+__|^derived__|^smsp|^Theoretical|^Achieved|^Block Limit")
"""Counters of Nsight Compute, by their names or by the labels of its details page."""


def with_details(trace: Trace, items: Sequence[QueueItem]) -> tuple[QueueItem, ...]:
    """Return the items with the blocks of their grids and the phase of the step that they belong to."""
    blocks = _blocks(trace, items)
    ranges = trace.named_rows(_OPTIMIZER, EventKind.HOST_RANGE)
    cover = Cover(trace.start_ns[ranges], trace.end_ns[ranges]) if len(ranges) else None
    phases = []
    for item in items:
        start = 0 if item.call == NOTHING else int(trace.start_ns[item.call])
        within = cover is not None and item.call != NOTHING and cover.inside(start, start + 1) > 0
        phases.append("optimizer" if within else "")
    return tuple(
        item._replace(block_count=count, phase=phase) for item, count, phase in zip(items, blocks, phases, strict=True)
    )


def _blocks(trace: Trace, items: Sequence[QueueItem]) -> list[int]:
    column = trace.sparse.get("grid")
    counts = [NOTHING] * len(items)
    places = [place for place, item in enumerate(items) if item.kernel != NOTHING]
    if column is None or not places:
        return counts
    rows = np.array([items[place].event for place in places], np.int64)
    for place, grid in zip(places, trace.values("grid", rows), strict=True):
        counts[place] = int(np.prod(grid)) if (grid > 0).all() else NOTHING
    return counts


def rules_of(trace: Trace, items: Sequence[QueueItem]) -> tuple[KernelRule, ...]:
    """Return what the profiler's own rules say of the kernels of items; nothing where it has none."""
    rules = trace.header.metadata.get("rules")
    if not isinstance(rules, dict) or "kernel_id" not in trace.sparse:
        return ()
    return tuple(
        KernelRule(place, rule.name, rule.kind, rule.text, rule.scope, rule.speedup_ratio)
        for place, item in enumerate(items) if item.kernel != NOTHING
        for rule in rules.get(str(trace.at("kernel_id", item.event)), ())
    )  # fmt: skip


def counters_of(trace: Trace, items: Sequence[QueueItem]) -> dict[int, dict[str, float]]:
    """Return the hardware counters of the kernels of items, by name; those that were not available are left out."""
    names = [name for name in trace.sparse if _COUNTER.search(name)]
    counters: dict[int, dict[str, float]] = {}
    for place, item in enumerate(items) if names else ():
        values: dict[str, Any] = {name: trace.at(name, item.event) for name in names if item.kernel != NOTHING}
        known = {name: float(x) for name, x in values.items() if isinstance(x, (int, float)) and not isnan(x)}
        if known:
            counters[place] = known
    return counters
