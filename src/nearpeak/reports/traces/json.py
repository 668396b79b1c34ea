"""A trace's report as JSON: everything but the queues themselves and the picture."""

import json
from dataclasses import fields
from typing import Any

from nearpeak.core.traces.finding_report import TraceReport

KIND, SCHEMA_VERSION = "nearpeak trace report", 1
_LEFT_OUT = ("items", "slices", "rows", "called", "counters")


def to_json(report: TraceReport) -> str:
    """Return the report as one JSON object; cases as `label` names them."""
    record: dict[str, Any] = {"kind": KIND, "schema_version": SCHEMA_VERSION}
    for field in fields(report):
        if field.name != "executed":
            record[field.name] = _plain(getattr(report, field.name))
    record["step_s"] = report.step_s
    record["findings"] = [
        {name: value for name, value in finding.items() if name != "changes"} for finding in record["findings"]
    ]
    executed = report.executed
    record["executed"] = {
        field.name: _plain(getattr(executed, field.name)) for field in fields(executed) if field.name not in _LEFT_OUT
    }
    return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _plain(value: Any) -> Any:
    """Return a value as objects, lists and scalars; tuples with names keep them."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
