"""An analysis as JSON, complete and versioned: the form that is saved, compared and read by other programs."""

import json
from typing import Any, NoReturn

from nearpeak.core.analysis import SCHEMA_VERSION, Analysis
from nearpeak.errors import SpecError
from nearpeak.report._codec import plain, value_of

KIND = "nearpeak analysis"
"""What the field `kind` of a saved analysis says."""


def render(analysis: Analysis) -> str:
    """Return the analysis as JSON text."""
    return to_json(analysis)


def to_json(analysis: Analysis) -> str:
    """Return the analysis as one JSON object, from which `from_json` makes an equal one."""
    record = {"kind": KIND, "schema_version": SCHEMA_VERSION, **plain(analysis, Analysis)}
    return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def from_json(text: str, where: str = "report") -> Analysis:
    """Return the analysis that `text` states.

    Args:
        where: what the message of an error calls the text, e.g. the file's name.

    Raises:
        SpecError: the text is no JSON, no saved analysis, of another schema version, or incomplete.
    """
    raw = _parsed(text, where)
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        found = f"its kind is {raw['kind']!r}" if isinstance(raw, dict) and "kind" in raw else "it states no kind"
        raise SpecError(f"{where}: not a saved analysis: {found}; 'nearpeak analyze --json' writes {KIND!r}")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        raise SpecError(f"{where}: has schema version {version!r}; this nearpeak reads version {SCHEMA_VERSION}")
    fields = {name: value for name, value in raw.items() if name not in ("kind", "schema_version")}
    analysis: Analysis = value_of(fields, Analysis, where)
    _check_times(analysis, where)
    return analysis


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        cut = "empty" if not text.strip() else f"{error.msg} at line {error.lineno} column {error.colno}"
        raise SpecError(f"{where}: not JSON, or cut off: {cut}; save it again with 'nearpeak analyze --json'") from None
    except (RecursionError, ValueError) as error:
        raise SpecError(f"{where}: not a saved analysis: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check_times(analysis: Analysis, where: str) -> None:
    for number, target in enumerate(analysis.targets):
        if len(target.times) != len(analysis.rows):
            found = f"has {len(target.times)} times for {len(analysis.rows)} rows; there must be one per row"
            raise SpecError(f"{where}.targets[{number}]: {target.target} {found}")
