"""File format of a suite: a header and one JSON line per case; equal suites give identical bytes."""

from dataclasses import replace
from typing import Any

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.input_files import check_line_count, json_value
from nearpeak.core.answers.suite import REASONS, WHY, Source, Suite, SuiteCase, Why
from nearpeak.core.records.converter import COUNT, Converter
from nearpeak.core.records.record_codec import Codec, Schema, Shape
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import CASE

SCHEMA = Schema(
    kind="nearpeak.suite", version=1, title="a suite", advice="write one with 'nearpeak suite build … --out FILE'",
    kind_key="schema", version_key="version",
)  # fmt: skip
# 1: header with name, plan, sources; cases with digest, record, reasons, and whether they are left out.
_CODEC = Codec(
    types={Case: CASE},
    shapes={
        Source: Shape(
            names={"call_count": "calls"}, brief=("call_count", "uncovered", "origin"), fields={"call_count": COUNT}
        ),
        Suite: Shape(omitted={"cases": ()}),
        SuiteCase: Shape(
            names={"chosen": "left_out"},
            brief=("chosen",),
            fields={"chosen": Converter(lambda chosen: not chosen, lambda left_out: not left_out)},
        ),
        Why: WHY,
    },
)


def save_text(suite: Suite) -> str:
    """Return `suite` as JSON lines: the header first, then each case with its digest."""
    header = {**SCHEMA.head(), "case_count": len(suite.cases), **_CODEC.plain(suite)}
    return "".join(canonical_json(line) + "\n" for line in (header, *map(case_record, suite.cases)))


def load_text(text: str, where: str) -> Suite:
    """Return the suite that `text` holds.

    Args:
        where: file name for messages.

    Raises:
        SpecError: not a suite, of a newer schema version, cut short or changed by hand; the line is named.
    """
    check_line_count(text, where)
    first, _, rest = text.partition("\n")
    header = SCHEMA.current(_object(first, f"{where}:1"), where)
    lines = [(f"{where}:{number}", line) for number, line in enumerate(rest.split("\n"), start=2) if line.strip()]
    suite: Suite = _CODEC.value(header, Suite, f"{where}:1")
    if header.get("case_count") != len(lines):
        count = header.get("case_count")
        raise SpecError(f"{where}: holds {len(lines)} cases, its header says {count}; it was cut or changed")
    names = {source.name for source in suite.sources}
    return replace(suite, cases=tuple(_case(row, at, names) for at, row in lines))


def is_suite(text: str) -> bool:
    """Say whether a text claims to be a suite of any version.

    >>> is_suite('{"name":"x","schema":"nearpeak.suite","version":9}')
    True
    """
    return f'"schema":"{SCHEMA.kind}"' in text.partition("\n")[0].replace(" ", "")


def case_record(suite_case: SuiteCase) -> dict[str, Any]:
    """Return a case of a suite as plain data, as one line of the file holds it."""
    return {"digest": suite_case.case.digest, **_CODEC.plain(suite_case)}


def _case(text: str, where: str, names: set[str]) -> SuiteCase:
    """Return the case of one line, refused when it is not the one that its digest names."""
    record = _object(text, where)
    try:
        suite_case: SuiteCase = _CODEC.value(record, SuiteCase, where)
    except NotModelledError as error:
        raise NotModelledError(f"{where}: {error}") from None
    if "digest" not in record:
        raise SpecError(f"{where}: has no digest; it needs digest, case and why")
    if record["digest"] != suite_case.case.digest:
        stated = str(record["digest"])[:12]
        raise SpecError(
            f"{where}: digest {stated} is not that of the case, {suite_case.case.digest[:12]}; build it again"
        )
    if not suite_case.why or any(why.source not in names or why.kind not in REASONS for why in suite_case.why):
        raise SpecError(f"{where}: every case needs reasons of a known kind from sources of the header")
    return suite_case


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        data = json_value(text)
    except ValueError as error:
        raise SpecError(f"{where}: not JSON ({error}); a suite is JSON lines") from None
    if not isinstance(data, dict):
        raise SpecError(f"{where}: is not an object; a suite is one object per line")
    return data
