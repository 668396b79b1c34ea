"""Report of the audit of a measurement table, as a document and JSON."""

import dataclasses
import json

from nearpeak.core.answers.audit import KINDS, Audit, AuditFinding
from nearpeak.core.work.target import Target
from nearpeak.reports.document import Block, Document, Heading, Table, columns
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


def audit_document(target: Target, audit: Audit) -> Document:
    """Return the findings of each kind, with the first rows of each, and the spread of repeats."""
    wrong = len({finding.row for finding in audit.findings})
    blocks: list[Block] = [*audit.remarks]
    for kind, count in audit.counts.items():
        of_kind = [finding for finding in audit.findings if finding.kind == kind]
        blocks.append(Heading(f"{count} {kind}: {KINDS[kind]}", level=3))
        blocks.append(
            Table(
                columns=columns("#row|", "~finding|"), rows=[(finding.row, _text(finding)) for finding in of_kind],
                brief_count=SHOWN, rest=f"and {count - SHOWN} more", indent_count=2,
            )
        )  # fmt: skip
    if audit.noise:
        blocks.append(Heading("Spread of repeats", level=3))
    blocks += [
        f"{counted(floor.pair_count, 'case')} with several {floor.what}: times differ by "
        f"{100 * floor.median_ratio:.1f} % (median), {100 * floor.p90_ratio:.1f} % (90th percentile)"
        for floor in audit.noise
    ]
    title = f"{audit.row_count} rows on {target.title} ({target.name}): {wrong} with findings"
    return Document(title=title, blocks=blocks)


def _text(finding: AuditFinding) -> str:
    if finding.measured_s is None or finding.expected_s is None:
        return finding.text
    other = f" of row {finding.other_row}" if finding.other_row is not None else ""
    return f"{show(finding.measured_s, 's')} against {show(finding.expected_s, 's')}{other}"
