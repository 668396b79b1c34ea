"""Report of the audit of a measurement table, as text and JSON."""

import dataclasses
import json

from nearpeak.core.answers.audit import KINDS, Audit, AuditFinding
from nearpeak.core.work.target import Target
from nearpeak.reports.figure_text import hung
from nearpeak.units import counted, show

SHOWN = 5
"""Rows named per kind in text; --out and --json have all."""


def to_json(target: Target, audit: Audit) -> str:
    """Return the audit as one JSON line."""
    return json.dumps(
        {
            "target": target.name, "rows": audit.row_count, "counts": dict(audit.counts),
            "findings": [dataclasses.asdict(finding) for finding in audit.findings],
            "noise": [dataclasses.asdict(finding) for finding in audit.noise], "remarks": list(audit.remarks),
        }
    )  # fmt: skip


def to_terminal(target: Target, audit: Audit) -> str:
    """Return the audit as text."""
    wrong = len({finding.row for finding in audit.findings})
    lines = [f"{audit.row_count} rows on {target.title} ({target.name}): {wrong} with findings"]
    lines += [line for remark in audit.remarks for line in ("", f"  {remark}")]
    for kind, count in audit.counts.items():
        lines += ["", f"  {count} {kind}: {KINDS[kind]}"]
        of_kind = [finding for finding in audit.findings if finding.kind == kind]
        lines += [f"    {_row(finding)}" for finding in of_kind[:SHOWN]]
        lines += [f"    and {count - SHOWN} more"] if count > SHOWN else []
    for floor in audit.noise:
        lines += [
            "",
            f"  {counted(floor.pair_count, 'case')} with several {floor.what}: times differ by "
            f"{100 * floor.median_ratio:.1f} % (median), {100 * floor.p90_ratio:.1f} % (90th percentile)",
        ]
    return "\n".join(hung(lines))


def _row(finding: AuditFinding) -> str:
    if finding.measured_s is None or finding.expected_s is None:
        return f"row {finding.row}: {finding.text}"
    other = f" of row {finding.other_row}" if finding.other_row is not None else ""
    return f"row {finding.row}: {show(finding.measured_s, 's')} against {show(finding.expected_s, 's')}{other}"
