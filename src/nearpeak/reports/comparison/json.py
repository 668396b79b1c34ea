"""A comparison as JSON, with a ratio and a verdict beside every pair of figures."""

import json
from collections.abc import Sequence
from typing import Any

from nearpeak.core.answers.analysis_comparison import Change, Comparison

KIND = "nearpeak comparison"
SCHEMA_VERSION = 1
# 1: first version; documented in docs/reference/report_json.md.


def to_json(comparison: Comparison) -> str:
    """Return the comparison as one JSON object."""
    record = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "reason": comparison.reason,
        "changes": _changes(comparison.changes),
        "targets": [
            {
                "target": target.target,
                "verdict": target.verdict,
                "reason": target.reason,
                "changes": _changes(target.changes),
                "cases": [
                    {
                        "label": case.label,
                        "digest": case.digest,
                        "verdict": case.verdict,
                        "reason": case.reason,
                        "changes": _changes(case.changes),
                    }
                    for case in target.cases
                ],
            }
            for target in comparison.targets
        ],
    }
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def _changes(changes: Sequence[Change]) -> dict[str, Any]:
    return {
        change.quantity: {
            "baseline": change.pair[1],
            "candidate": change.pair[2],
            "ratio": change.ratio,
            "verdict": change.verdict,
        }
        for change in changes
    }
