"""Writes runs into the store, one transaction per run, so that a visible run is complete and never duplicated."""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, insert, select

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.stored_run import RunRecord, Source, fingerprints_of
from nearpeak.core.runs.estimate import median_ranks
from nearpeak.errors import SpecError
from nearpeak.store import newest_runs
from nearpeak.store.rows.dimension_rows import device_id, revision_id, series_ids, stack_id
from nearpeak.store.rows.row_identity import importer_text
from nearpeak.store.sample_blobs import array_of, checksum, packed
from nearpeak.store.sql_dialect import add_rows, claim
from nearpeak.store.table_schema import SUMMARIES, TABLES

PLACE_BITS = 20
"""Bits of an order key, or of the id of a sample blob, that number runs of a commit, or sets of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Outcome of the ingest of one run."""

    id: int
    """Its identity within the store."""
    uid: str
    """Its identity in every store."""
    new: bool
    """Whether it was not there before."""
    series_ids: tuple[int, ...]
    """Series of its sets of samples, in their order; empty where it was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run as rows, made before anything is locked."""

    record: RunRecord
    """The run."""
    uid: str
    """Its identity."""
    arrays: tuple[npt.NDArray[Any], ...]
    """Samples of each set, as they will be read again."""
    fingerprints: tuple[str, ...]
    """Identity of the series of each set."""
    quantities: tuple[Mapping[str, float | None], ...]
    """Summaries of each set."""

    @property
    def data_bytes(self) -> int:
        """Bytes of the samples."""
        return sum(array.nbytes for array in self.arrays)


def prepared(record: RunRecord) -> Prepared:
    """Return `record` as rows.

    Raises:
        SpecError: samples are not finite, do not fit, or are too many.
    """
    if len(record.samples) >= 1 << PLACE_BITS:
        raise SpecError(f"run: {len(record.samples)} sets of samples; at most {(1 << PLACE_BITS) - 1} in one run")
    for sample_set in record.samples:
        for text in (sample_set.case, sample_set.label, sample_set.note, sample_set.workload, sample_set.testbed.name):
            if "\x00" in text:
                raise SpecError(f"{sample_set.label!r}: a text holds a NUL character, which no database keeps")
    arrays = tuple(
        array_of(sample_set.label, sample_set.metric.unit, sample_set.values) for sample_set in record.samples
    )
    try:
        fingerprints = fingerprints_of(record)
    except UnicodeEncodeError as error:  # bytes of a command line that are no text
        raise SpecError(f"run: {str(error.object)[:60]!r} holds what is no text, which no database keeps") from None
    return Prepared(
        record=record, uid=uid_of(record.source), arrays=arrays, quantities=tuple(_derived(arrays)),
        fingerprints=fingerprints,
    )  # fmt: skip


def uid_of(source: Source) -> str:
    """Return the identity that a run of that source has in every store."""
    return source.key[:32]


def lock_runs(connection: Connection) -> None:
    """Wait until no other transaction writes runs; on SQLite this one is the only writer anyway.

    Two at once would number the runs of a commit alike, miss each other as the newest of a series, and could wait for
    each other's new cases and devices without end.
    """
    claim(connection, "runs")


def stored_run(connection: Connection, uid: str) -> Ingested | None:
    """Return the run of that identity where it is there already."""
    run = connection.execute(select(TABLES["run"].c.id).where(TABLES["run"].c.uid == uid)).scalar()
    return None if run is None else Ingested(id=run, uid=uid, new=False, series_ids=())


def add_run(connection: Connection, ready: Prepared, known: Mapping[str, int]) -> Ingested:
    """Write a run that is not there yet, within the transaction of `connection`.

    Args:
        known: ids of series by fingerprint.

    Raises:
        SpecError: a metric has another unit in the store, or the commit is not in the history that the store knows.
    """
    record = ready.record
    series = series_ids(connection, record, ready.fingerprints, known)
    row = _run_row(connection, ready)
    run = int(connection.execute(insert(TABLES["run"]).values(row).returning(TABLES["run"].c.id)).scalar_one())
    _add_sets(connection, run, series, ready)
    newest_runs.add(connection, run, row["order_key"])
    return Ingested(id=run, uid=ready.uid, new=True, series_ids=tuple(series))


def replace_run(connection: Connection, ready: Prepared, old: Ingested, known: Mapping[str, int]) -> Ingested:
    """Write a run that is there already once more; the old one stays, but no longer counts.

    Args:
        known: as for `add_run`.
    """
    runs = TABLES["run"]
    newest = old.id
    while (later := connection.execute(select(runs.c.superseded_by).where(runs.c.id == newest)).scalar()) is not None:
        newest = later
    uid = digest([ready.uid, connection.execute(select(runs.c.uid).where(runs.c.id == newest)).scalar_one()])[:32]
    run = add_run(connection, replace(ready, uid=uid), known)
    connection.execute(runs.update().where(runs.c.id == newest).values(superseded_by=run.id))
    newest_runs.refresh(connection, set(run.series_ids))
    return run


def _run_row(connection: Connection, ready: Prepared) -> dict[str, Any]:
    record, source = ready.record, ready.record.source
    revision = None if record.revision is None else revision_id(connection, record.revision)
    return {
        "uid": ready.uid, "revision_id": revision, "branch": record.branch, "dirty_hash": record.dirty,
        "stack_id": stack_id(connection, record.stack), "device_id": device_id(connection, record.device),
        "order_key": _order_key(connection, record, revision), "run_trigger": record.trigger,
        "started_ns": record.started_ns, "ended_ns": record.ended_ns,
        "settings": canonical_json(dict(record.device.settings)), "facts": canonical_json(dict(record.facts)),
        "source_name": source.name, "source_digest": source.digest, "importer": importer_text(source),
        "lost": canonical_json(list(source.lost)), "superseded_by": None,
    }  # fmt: skip


def _order_key(connection: Connection, record: RunRecord, revision: int | None) -> int:
    """Return the place of a run in its history: by commit and number within it, by time where there is no history."""
    if record.revision is None or revision is None:
        return record.started_ns
    runs, revisions = TABLES["run"].c, TABLES["revision"].c
    number = connection.execute(select(func.count()).where(runs.revision_id == revision)).scalar_one()
    position, committed_ns = connection.execute(
        select(revisions.fp_pos, revisions.committed_ns).where(revisions.id == revision)
    ).one()
    return order_key(position, committed_ns or record.started_ns, number)


def order_key(position: int | None, time_ns: int, number: int) -> int:
    """Return the order key of a commit's run.

    Args:
        position: first-parent commits before it; none where the history is not known.
        time_ns: when it was committed, which orders commits of no known history after all others.
        number: runs of the same commit before this one.

    >>> order_key(3, 0, 1) == (3 << 20) + 1
    True
    """
    return time_ns + number if position is None else (position << PLACE_BITS) + number


def _add_sets(connection: Connection, run: int, series: Sequence[int], ready: Prepared) -> None:
    rows, blobs, channels, records = [], [], [], []
    for place, (sample_set, series_id, array) in enumerate(
        zip(ready.record.samples, series, ready.arrays, strict=True)
    ):
        sample_id = (run << PLACE_BITS) + place if array.size else None
        derived = [ready.quantities[place][name] for name in SUMMARIES]
        rows.append((
            run, series_id, sample_set.launch, sample_id, array.size, *derived, sample_set.clock_hz,
            sample_set.outcome, sample_set.note or None, 0,
        ))  # fmt: skip
        if sample_id is not None:
            blobs.append((sample_id, *packed(array)))
        for name, values in sample_set.channels.items():
            unit = name.rpartition("_")[2]
            beside = packed(array_of(f"{sample_set.label}: {name}", unit, values))
            channels.append((run, series_id, sample_set.launch, name, *beside))
        for kind, text in sample_set.records.items():
            data = zlib.compress(text.encode())
            records.append((run, series_id, sample_set.launch, kind, checksum(data), data))
    add_rows(connection, TABLES["sample_blob"], blobs)
    add_rows(connection, TABLES["measurement"], sorted(rows, key=lambda row: row[1:3]))
    add_rows(connection, TABLES["channel_blob"], channels)
    if records:  # stores of earlier schemas, which tests fill, have no table for them
        add_rows(connection, TABLES["record_blob"], records)


def _derived(arrays: Sequence[npt.NDArray[Any]]) -> Iterator[dict[str, float | None]]:
    """Yield the summaries of each array; those of one length are computed together."""
    rows: list[dict[str, float | None]] = [dict.fromkeys(SUMMARIES)] * len(arrays)
    by_size = sorted(range(len(arrays)), key=lambda place: arrays[place].size)
    for size, places in groupby(by_size, key=lambda place: arrays[place].size):
        together = list(places)
        if size:
            columns = summaries(np.stack([arrays[place].astype(np.float64) for place in together]))
            table = np.stack([columns[name] for name in SUMMARIES], axis=1).tolist()
            for place, row in zip(together, table, strict=True):
                rows[place] = dict(zip(SUMMARIES, row, strict=True))
    yield from rows


def summaries(rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the summaries of each row of samples.

    Shapes: rows [sets, samples], at least one sample; results [sets].

    Quantiles lie between neighbours by proportion; `low` and `high` are the ends of the median's 95 % interval by
    ranks. All are order statistics, so that the summaries of a set do not depend, to the bit, on other sets.

    >>> {name: float(found[0]) for name, found in summaries(np.array([[3.0, 1.0, 2.0]])).items()}["median"]
    2.0
    """
    ordered = np.sort(rows.astype(np.float64), axis=1)
    count = ordered.shape[1]
    low, high = median_ranks(count)
    return {
        "median": _quantile(ordered, 0.5), "q1": _quantile(ordered, 0.25), "q3": _quantile(ordered, 0.75),
        "low": ordered[:, low], "high": ordered[:, high], "least": ordered[:, 0],
    }  # fmt: skip


def _quantile(ordered: npt.NDArray[np.float64], share_ratio: float) -> npt.NDArray[np.float64]:
    place = share_ratio * (ordered.shape[1] - 1)
    below = math.floor(place)
    above = min(below + 1, ordered.shape[1] - 1)
    quantiles: npt.NDArray[np.float64] = ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
    return quantiles
