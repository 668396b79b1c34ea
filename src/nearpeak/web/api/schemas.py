"""JSON schemas of the API's requests and responses."""

from typing import Any

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
REAL: Json = {"type": "number"}
MAYBE_REAL: Json = {"type": ["number", "null"]}
MAYBE_WHOLE: Json = {"type": ["integer", "null"]}
PAIRS: Json = {"type": "array", "items": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}}
SCALARS: Json = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "integer"]}}


def listed(items: Json) -> Json:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def fields(required: tuple[str, ...] | None = None, **properties: Json) -> Json:
    """Return the schema of an object; all fields are required by default."""
    return {"type": "object", "properties": properties,
            "required": list(properties if required is None else required)}  # fmt: skip


METRIC = fields(("name", "unit"), name=TEXT, unit=TEXT, direction=TEXT, scale=TEXT, kind=TEXT)
TESTBED = fields(("name",), name=TEXT, policy=SCALARS)
SAMPLES = fields(
    ("case", "label", "metric", "testbed", "values"), case=TEXT, label=TEXT, metric=METRIC, testbed=TESTBED,
    values=listed(REAL), parameters=SCALARS, workload=TEXT, launch=WHOLE, outcome=TEXT, note=TEXT,
    clock_hz=MAYBE_REAL, channels={"type": "object", "additionalProperties": listed(REAL)},
)  # fmt: skip
DEVICE = fields(("name",), name=TEXT, vendor=TEXT, architecture=TEXT, uuid=TEXT, partition=TEXT, host=TEXT,
                settings=PAIRS)  # fmt: skip
REVISION = fields(
    ("sha",), sha=TEXT, repository=TEXT, position=MAYBE_WHOLE, parent_sha=TEXT, author=TEXT, authored_ns=MAYBE_WHOLE,
    committed_ns=MAYBE_WHOLE, subject=TEXT, pull_request=TEXT,
)  # fmt: skip
SOURCE = fields(("digest",), digest=TEXT, importer=TEXT, version=WHOLE, selector=TEXT, name=TEXT, lost=listed(TEXT),
                uid=TEXT)  # fmt: skip
RUN = fields(
    ("device", "samples", "source"), device=DEVICE, samples=listed(SAMPLES), source=SOURCE,
    revision={"oneOf": [REVISION, {"type": "null"}]}, branch=TEXT, stack=PAIRS, track=PAIRS, started_ns=WHOLE,
    ended_ns=MAYBE_WHOLE, trigger=TEXT, dirty=TEXT, facts=SCALARS,
)  # fmt: skip
RUNS = fields(runs={**listed(RUN), "minItems": 1, "maxItems": 200})
TAKEN = fields(runs=listed(fields(id=WHOLE, uid=TEXT, new={"type": "boolean"})))
SERIES = fields(
    id=WHOLE, fingerprint=TEXT, case=TEXT, label=TEXT, parameters=SCALARS, workload=TEXT, metric=METRIC, device=TEXT,
    testbed=TESTBED, branch=TEXT, track=PAIRS, owner=TEXT,
)  # fmt: skip
POINT = fields(
    sha=TEXT, position=WHOLE, order_key=WHOLE, run=WHOLE, value=REAL, low=REAL, high=REAL, launches=WHOLE,
)  # fmt: skip
CHANGE = fields(order_key=WHOLE, rev_lo=TEXT, rev_hi=TEXT, ratio=REAL, low_ratio=MAYBE_REAL, high_ratio=MAYBE_REAL,
                tier=TEXT)  # fmt: skip
HISTORY = fields(series=SERIES, points=listed(POINT), changes=listed(CHANGE), bound=MAYBE_REAL, predicted=MAYBE_REAL)
ALERT = fields(
    id=WHOLE, title=TEXT, status=TEXT, rev_lo=TEXT, rev_hi=TEXT, assignee=TEXT, priority=WHOLE, created_ns=WHOLE,
    due_ns=MAYBE_WHOLE, snoozed_until_ns=MAYBE_WHOLE, tracker_url=TEXT, change_count=WHOLE, worst_ratio=MAYBE_REAL,
    gap_s=MAYBE_REAL,
)  # fmt: skip
ACTION = fields(("action",), action=TEXT, note=TEXT, assignee=TEXT, days=WHOLE)
ERROR = fields(error=TEXT)


def page_of(items: Json, name: str) -> Json:
    """Return the schema of a page of a list."""
    return fields((name, "total"), **{name: listed(items), "total": WHOLE})
