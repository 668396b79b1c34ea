"""Command `nearpeak audit`: implausible and inconsistent rows of a table of measurements."""

from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.table_files import check_table, naming, write_cases
from nearpeak.errors import SpecError

_ADDED = "findings"
"""Column that is added to a table."""


def audit(
    table: Path = typer.Argument(
        ..., help="Table (.csv, .jsonl, .parquet): op, dtype, axes and a time column such as time_us."
    ),
    target: list[str] = shared.ONE_TARGET,
    out: Path | None = typer.Option(None, "--out", help="Write the table with a column 'findings' added."),
    json: bool = shared.JSON,
) -> None:
    """Find implausible rows of a measurement table, and the spread of its repeats.

    Rows faster than their bound, copies, repeats that took twice the shortest, cells rewritten to the roofline, larger
    cases that are faster, points off their curve, times over 30 times off the prediction. A kind of case whose times
    are all far off the predictions, as in another unit, is remarked on. Columns such as software or kernel tell
    implementations apart. Nothing is dropped or changed.
    """
    from nearpeak.frontends.files.case_tables import read_columns
    from nearpeak.prediction.calibration.samples import check_device, samples_of
    from nearpeak.prediction.calibration.table_audit import audit as audited
    from nearpeak.reports import audit_report as report

    devices = shared.targets_of(target, [])
    if len(devices) != 1:
        raise SpecError(f"audit: a table takes one target, got {len(devices)}; run once per target")
    check_table(out)
    columns = read_columns(table)
    if out is not None and _ADDED in columns:
        raise SpecError(f"{table}: its own column {_ADDED!r} would be replaced by --out; rename it, or leave it out")
    with naming(table):
        samples = samples_of(columns)
        check_device(samples, devices[0])
    audit_result = audited(columns, samples, devices[0])
    shared.tell(
        lambda: report.audit_document(devices[0], audit_result),
        lambda: report.to_json(devices[0], audit_result),
        json=json,
    )
    if out is not None:
        kinds: list[list[str]] = [[] for _ in range(audit_result.row_count)]
        for finding in audit_result.findings:
            kinds[finding.row - 1].append(finding.kind)
        write_cases(out, {**columns, _ADDED: [" ".join(names) for names in kinds]})
