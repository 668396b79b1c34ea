"""Report of the audit of a measurement table, as text and JSON."""

import dataclasses
import json

from nearpeak.core.answers.audit import KINDS, Audit, AuditFinding
from nearpeak.core.work.target import Target
from nearpeak.reports.figure_text import hung
from nearpeak.units import counted, show

SHOWN = 5
"""Rows named per kind in text; --out and --json have all."""


def to_json(target: Target, found: Audit) -> str:
    """Return the audit as one JSON line."""
    return json.dumps(
        {
            "target": target.name, "rows": found.row_count, "counts": dict(found.counts),
            "findings": [dataclasses.asdict(one) for one in found.findings],
            "noise": [dataclasses.asdict(one) for one in found.noise], "remarks": list(found.remarks),
        }
    )  # fmt: skip


def to_terminal(target: Target, found: Audit) -> str:
    """Return the audit as text."""
    wrong = len({one.row for one in found.findings})
    lines = [f"{found.row_count} rows on {target.title} ({target.name}): {wrong} with findings"]
    lines += [line for remark in found.remarks for line in ("", f"  {remark}")]
    for kind, count in found.counts.items():
        lines += ["", f"  {count} {kind}: {KINDS[kind]}"]
        own = [one for one in found.findings if one.kind == kind]
        lines += [f"    {_row(one)}" for one in own[:SHOWN]]
        lines += [f"    and {count - SHOWN} more"] if count > SHOWN else []
    for floor in found.noise:
        lines += [
            "",
            f"  {counted(floor.pair_count, 'case')} with several {floor.what}: times differ by "
            f"{100 * floor.median_ratio:.1f} % (median), {100 * floor.p90_ratio:.1f} % (90th percentile)",
        ]
    return "\n".join(hung(lines))


def _row(one: AuditFinding) -> str:
    if one.measured_s is None or one.expected_s is None:
        return f"row {one.row}: {one.text}"
    other = f" of row {one.other_row}" if one.other_row is not None else ""
    return f"row {one.row}: {show(one.measured_s, 's')} against {show(one.expected_s, 's')}{other}"
