"""Get-or-insert of dimension rows that measurements refer to: commits, machines, cases, series; never updated."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.stored_run import Device, Metric, Revision, RunRecord, SampleSet, Testbed, stack_fingerprint
from nearpeak.errors import SpecError
from nearpeak.store.sql_dialect import id_of, insert_new
from nearpeak.store.table_schema import TABLES

_MOST_NAMES = 500
"""Names per query; SQLite limits the parameters of a statement to some ten thousand."""


def ids_of(connection: Connection, table: str, unique: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the id of each row by its unique text; rows that are not there yet are added.

    Args:
        rows: whole rows by their unique text.
    """
    ids = known_ids(connection, table, unique, rows)
    missing = [{unique: name, **rows[name]} for name in sorted(rows.keys() - ids.keys())]
    if missing:
        insert_new(connection, TABLES[table], missing, [unique])
        ids |= known_ids(connection, table, unique, [row[unique] for row in missing])
    return ids


def known_ids(connection: Connection, table: str, unique: str, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of those rows of `table` that are there, by their unique text."""
    columns, wanted = TABLES[table].c, list(names)
    ids: dict[str, int] = {}
    for start in range(0, len(wanted), _MOST_NAMES):
        statement = select(columns[unique], columns.id).where(columns[unique].in_(wanted[start : start + _MOST_NAMES]))
        ids.update(connection.execute(statement).tuples().all())
    return ids


def series_ids(connection: Connection, record: RunRecord, prints: Sequence[str], known: Mapping[str, int]) -> list[int]:
    """Return the id of the series of each set of samples of `record`; series that are new are added.

    Args:
        prints: identity of the series of each set.
        known: ids by fingerprint that need no query.

    Raises:
        SpecError: a metric has another unit in the store.
    """
    missing = {name: sample_set for name, sample_set in zip(prints, record.samples, strict=True) if name not in known}
    _metric_ids(connection, {sample_set.metric.name: sample_set.metric for sample_set in record.samples})
    ids = known_ids(connection, "series", "fingerprint", missing)
    new = {name: sample_set for name, sample_set in missing.items() if name not in ids}
    if new:
        ids |= ids_of(connection, "series", "fingerprint", _series_rows(connection, record, new))
    return [known[name] if name in known else ids[name] for name in prints]


def _series_rows(connection: Connection, record: RunRecord, new: Mapping[str, SampleSet]) -> dict[str, dict[str, Any]]:
    cases = _case_ids(connection, new.values())
    metrics = _metric_ids(connection, {sample_set.metric.name: sample_set.metric for sample_set in new.values()})
    testbed_rows = {
        _testbed_print(bed): {"name": bed.name, "policy": canonical_json(dict(bed.policy))}
        for bed in (sample_set.testbed for sample_set in new.values())
    }
    testbeds = ids_of(connection, "testbed", "fingerprint", testbed_rows)
    model = _model_id(connection, record.device)
    same = {
        "device_model_id": model, "mig_profile": record.device.partition, "branch": record.branch,
        "stack_track": canonical_json(sorted(record.track)), "noise": "{}", "owner": "",
    }  # fmt: skip
    return {
        name: {
            "test_case_id": cases[sample_set.case], "metric_id": metrics[sample_set.metric.name],
            "testbed_id": testbeds[_testbed_print(sample_set.testbed)], **same,
        } for name, sample_set in new.items()
    }  # fmt: skip


def _case_ids(connection: Connection, samples: Iterable[SampleSet]) -> dict[str, int]:
    sets = {sample_set.case: sample_set for sample_set in samples}
    names = {case: sample_set.workload or sample_set.label for case, sample_set in sets.items()}
    workloads = ids_of(connection, "workload", "name", {name: {"owner": ""} for name in names.values()})
    rows = {
        case: {
            "workload_id": workloads[names[case]], "label": sample_set.label,
            "parameters": canonical_json(dict(sample_set.parameters)),
        } for case, sample_set in sets.items()
    }  # fmt: skip
    return ids_of(connection, "test_case", "case_digest", rows)


def _metric_ids(connection: Connection, metrics: Mapping[str, Metric]) -> dict[str, int]:
    rows = {
        name: {"unit": metric.unit, "direction": metric.direction, "scale": metric.scale, "kind": metric.kind}
        for name, metric in metrics.items()
    }
    ids = ids_of(connection, "metric", "name", rows)
    columns = TABLES["metric"].c
    query = select(columns.name, columns.unit, columns.direction).where(columns.id.in_(ids.values()))
    for name, unit, direction in connection.execute(query):
        metric = metrics[name]
        if (unit, direction) != (metric.unit, metric.direction):
            raise SpecError(
                f"metric {name}: the store has it in {unit} ({direction} is better), this run in {metric.unit}"
                f" ({metric.direction}); a series has one unit: convert it, or give the metric another name"
            )
    return ids


def _testbed_print(testbed: Testbed) -> str:
    return digest([testbed.name, dict(testbed.policy)])


def _model_id(connection: Connection, device: Device) -> int:
    row = {"vendor": device.vendor, "architecture": device.architecture}
    return ids_of(connection, "device_model", "name", {device.name: row})[device.name]


def device_id(connection: Connection, device: Device) -> int:
    """Return the id of a device."""
    host = ids_of(connection, "host", "name", {device.host: {}})[device.host]
    row = {
        "device_model_id": _model_id(connection, device), "uuid": device.uuid, "mig_profile": device.partition,
        "host_id": host,
    }  # fmt: skip
    return id_of(connection, TABLES["device"], row, list(row))


def stack_id(connection: Connection, stack: Sequence[tuple[str, str]]) -> int:
    """Return the id of a software stack.

    Raises:
        SpecError: a component is named twice.
    """
    if len(dict(stack)) < len(stack):
        names = [name for name, _ in stack]
        twice = next(name for name in names if names.count(name) > 1)
        raise SpecError(f"stack: {twice} is named twice; a component has one version")
    fingerprint = stack_fingerprint(tuple(stack))
    number = ids_of(connection, "stack", "fingerprint", {fingerprint: {}})[fingerprint]
    rows = [{"stack_id": number, "name": name, "version": version} for name, version in stack]
    insert_new(connection, TABLES["stack_component"], rows, ["stack_id", "name"])
    return number


def revision_id(connection: Connection, revision: Revision) -> int:
    """Return the id of a commit.

    Raises:
        SpecError: the commit is not in the known history of its repository, or has another position there.
    """
    repository = ids_of(connection, "repo", "url", {revision.repository: {}})[revision.repository]
    table = TABLES["revision"]
    query = select(table.c.id, table.c.fp_pos).where(table.c.repo_id == repository, table.c.sha == revision.sha)
    row = connection.execute(query).one_or_none()
    if row is None:
        _check_known(connection, repository, revision)
        revision_row = {
            "repo_id": repository,
            "sha": revision.sha,
            "parent_sha": revision.parent_sha,
            "author": revision.author,
            "authored_ns": revision.authored_ns,
            "committed_ns": revision.committed_ns,
            "fp_pos": revision.position,
            "subject": revision.subject,
            "pull_request": revision.pull_request,
        }
        return id_of(connection, table, revision_row, ["repo_id", "sha"])
    if revision.position is not None and row.fp_pos is None:
        connection.execute(table.update().where(table.c.id == row.id).values(fp_pos=revision.position))
    elif revision.position not in (None, row.fp_pos):
        raise SpecError(
            f"commit {revision.sha}: stands at position {revision.position} of its history, in the store at"
            f" {row.fp_pos}; after a rewritten history run 'nearpeak store check --repository'"
        )
    return int(row.id)


def _check_known(connection: Connection, repository: int, revision: Revision) -> None:
    columns = TABLES["revision"].c
    placed = select(columns.id).where(columns.repo_id == repository, columns.fp_pos.is_not(None)).limit(1)
    if revision.position is None and connection.execute(placed).first() is not None:
        raise SpecError(
            f"commit {revision.sha}: is not in the history of {revision.repository or 'its repository'} that the store"
            " knows; give the repository that holds it (--repository)"
        )
