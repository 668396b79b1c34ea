"""Training runs as records of the store: epochs, batches, stalls and energy as series, phases as channels."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nearpeak.base.canonical_json import digest
from nearpeak.core.edge.training_matrix import PHASES, CellLog, EpochLog, TrainingCell
from nearpeak.core.history.stored_run import Device, Metric, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.core.records.record_codec import Codec
from nearpeak.core.runs.energy import Energy
from nearpeak.errors import NearpeakError

TESTBED = "train-bench"
"""Name of the testbed, before the device."""
RECORD = "training"
"""Kind of the attachment that holds the log without its batches."""
EPOCH, FIRST = Metric(name="epoch", unit="s"), Metric(name="first_epoch", unit="s")
BATCH, STALL = Metric(name="batch", unit="s"), Metric(name="stall", unit="s")
ENERGY = "energy"
_LEAST_S = 1e-9
"""A stall of no time at all: times in the store are more than 0."""
_CODEC = Codec(pairs_as_objects=True)


def training_record(log: CellLog, revision: Revision | None = None, branch: str = "main") -> RunRecord:
    """Return a run that has ended as a record; the same run gives the same identity.

    Series are apart by power mode, storage and board software, which belong to the testbed; versions of packages may
    change along a series.
    """
    facts, environment = log.facts, log.environment
    policy = {name: facts[name] for name in ("mode", "storage", "l4t", "data") if facts.get(name)}
    bed = Testbed(name=f"{TESTBED} {log.cell.device}", policy={**policy, "timer": "monotonic"})
    device = Device(name=environment.device, uuid=environment.device_uuid, settings=environment.settings)
    return RunRecord(
        device=device, samples=tuple(_samples(log, bed)),
        source=Source(digest=log.key, importer=TESTBED, name=log.cell.label), revision=revision, branch=branch,
        stack=(*environment.packages, *((("driver", environment.driver),) if environment.driver else ())),
        started_ns=log.begun_wall_ns,
        ended_ns=log.begun_wall_ns + log.epochs[-1].end_ns - log.epochs[0].begin_ns,
        facts={"fingerprint": environment.digest, "round": log.cell.round, "key": log.key},
    )  # fmt: skip


def failed_record(cell: TrainingCell, key: str, reason: str, device: Device, revision: Revision | None) -> RunRecord:
    """Return a run that has failed for good as a record: its epoch has no time, and says why."""
    bed = Testbed(name=f"{TESTBED} {cell.device}", policy={"timer": "monotonic"})
    sample = SampleSet(
        case=digest(cell.case()), label=cell.label, metric=EPOCH, testbed=bed, values=(), parameters=cell.case(),
        workload=cell.model, outcome="failed", note=reason[:500],
    )  # fmt: skip
    source = Source(digest=key, importer=TESTBED, selector="failed", name=cell.label)
    return RunRecord(device=device, samples=(sample,), source=source, revision=revision)


def _samples(log: CellLog, bed: Testbed) -> Iterator[SampleSet]:
    """Yield the series of a run."""
    cell, later = log.cell, log.later
    common: dict[str, Any] = {
        "case": digest(cell.case()), "label": cell.label, "testbed": bed, "parameters": cell.case(),
        "workload": cell.model,
    }  # fmt: skip
    record = {RECORD: json.dumps(_CODEC.plain(summary_of(log)), allow_nan=False)}
    yield SampleSet(metric=EPOCH, values=tuple(epoch.epoch_s for epoch in later), records=record, **common)
    yield SampleSet(metric=FIRST, values=(log.epochs[0].epoch_s,), **common)
    yield SampleSet(metric=STALL, values=tuple(max(_LEAST_S, epoch.stall_s) for epoch in later), **common)
    columns = {
        f"{name}_s": tuple(value / 1e9 for value in _column(later, f"{name}_ns")) for name in (*PHASES, "read", "prep")
    }
    batches = tuple(sum(parts) for parts in zip(*(columns[f"{name}_s"] for name in PHASES), strict=True))
    counts = {f"{name}_count": _column(later, name) for name in ("worker", "item_bytes")}
    yield SampleSet(metric=BATCH, values=batches, channels={**columns, **counts}, **common)
    for domain, energies_j in _energies(later):
        metric = Metric(name=domain, unit="J", kind="energy")
        yield SampleSet(metric=metric, values=energies_j, **common)


def _column(epochs: Sequence[EpochLog], name: str) -> tuple[int, ...]:
    return tuple(value for epoch in epochs for value in epoch.channels[name])


def _energies(epochs: Sequence[EpochLog]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the metric of each domain that meters every epoch: the one that draws most is `energy`, never a sum."""
    domains: dict[str, list[Energy]] = {}
    for epoch in epochs:
        for energy in epoch.energies:
            domains.setdefault(energy.domain, []).append(energy)
    whole = {domain: energies for domain, energies in domains.items() if len(energies) == len(epochs)}
    ordered = sorted(whole, key=lambda domain: -sum(energy.energy_j for energy in whole[domain]))
    for place, domain in enumerate(ordered):
        values_j = tuple(energy.energy_j for energy in whole[domain])
        if all(value_j > 0 for value_j in values_j):
            yield ENERGY if place == 0 else f"{ENERGY}_{domain}", values_j


def summary_of(log: CellLog) -> CellLog:
    """Return a log whose batches are summed up: what fits into an attachment."""
    names = [f"{name}_ns" for name in (*PHASES, "read", "prep")] + ["item_bytes"]
    epochs = tuple(
        replace(epoch, channels={name: (sum(epoch.channels[name]),) for name in names}) for epoch in log.epochs
    )
    return replace(log, epochs=epochs)


def log_of_record(records: dict[str, Any], label: str) -> CellLog | None:
    """Return the log that is attached to a run; none where there is none, or another version or program wrote it."""
    if RECORD not in records:
        return None
    try:
        log: CellLog = _CODEC.value(records[RECORD], CellLog, label)
    except NearpeakError:
        return None
    return log if log.epochs and all(map(_is_whole, log.epochs)) else None


def _is_whole(epoch: EpochLog) -> bool:
    """Return whether an epoch has all that reports read; what others have put into a store may lack it."""
    phases = {f"{name}_ns" for name in PHASES}
    timed = epoch.end_ns > epoch.begin_ns and phases <= set(epoch.channels)
    return timed and "accuracy" in epoch.quantities and epoch.data_bytes > 0
