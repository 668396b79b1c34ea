"""A gate decision as JSON, with the figures behind each line."""

import json
from dataclasses import asdict

from nearpeak.core.history.gate import GateResult

KIND = "nearpeak gate"
SCHEMA_VERSION = 1
# 1: first version; documented in docs/guide/history.md.


def render(result: GateResult) -> str:
    """Return the result as one JSON object."""
    record = {"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(result)}
    return json.dumps(record, allow_nan=False, indent=1) + "\n"
