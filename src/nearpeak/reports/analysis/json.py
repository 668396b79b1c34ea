"""An analysis as complete, versioned JSON, the format for saving, comparison and other programs."""

import json
from typing import Any, NoReturn

from nearpeak.base.input_files import json_value, reading
from nearpeak.core.answers.analysis import SCHEMA_VERSION, Analysis
from nearpeak.core.records.converter import PLAIN_FLOAT
from nearpeak.core.records.record_codec import Codec, Schema
from nearpeak.errors import SpecError

SCHEMA = Schema(
    kind="nearpeak analysis", version=SCHEMA_VERSION, title="a saved analysis",
    advice="'nearpeak analyze --json' writes one", migrations={4: dict},
)  # fmt: skip
RECORDS = Codec(types={float: PLAIN_FLOAT}, strict=True, pairs_as_objects=True)
"""Conversions of core values to and from JSON reports."""


def render(analysis: Analysis) -> str:
    """Return the analysis as JSON text."""
    return to_json(analysis)


def to_json(analysis: Analysis) -> str:
    """Return the analysis as one JSON object, from which `from_json` makes an equal one."""
    record = {**SCHEMA.head(), **RECORDS.plain(analysis)}
    return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def from_json(text: str, where: str = "report") -> Analysis:
    """Return the analysis that `text` states.

    Args:
        where: what the message of an error calls the text, e.g. the file's name.

    Raises:
        SpecError: the text is no JSON, no saved analysis, of another schema version, or incomplete.
    """
    with reading(where, "saved analysis"):
        analysis: Analysis = RECORDS.value(SCHEMA.current(_parsed(text, where), where), Analysis, where)
    for number, target in enumerate(analysis.targets):
        if len(target.times) != len(analysis.rows):
            problem = f"has {len(target.times)} times for {len(analysis.rows)} rows; there must be one per row"
            raise SpecError(f"{where}.targets[{number}]: {target.target} {problem}")
    return analysis


def _parsed(text: str, where: str) -> Any:
    try:
        return json_value(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        cut = "empty" if not text.strip() else f"{error.msg} at line {error.lineno} column {error.colno}"
        raise SpecError(f"{where}: not JSON, or cut off: {cut}; save it again with 'nearpeak analyze --json'") from None
    except ValueError as error:
        raise SpecError(f"{where}: not a saved analysis: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
