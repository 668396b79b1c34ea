"""A suite as a file: a header and one line of JSON per case, the same bytes for the same suite."""

import json
from collections.abc import Mapping
from typing import Any

from nearpeak.canon import canonical_json
from nearpeak.core.case import Case
from nearpeak.core.suite import REASONS, Source, Suite, SuiteCase, why_of
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS

SCHEMA = "nearpeak.suite"
SCHEMA_VERSION = 1
# 1: header with name, plan, sources; cases with digest, record, reasons, and whether they are left out.


def save_text(suite: Suite) -> str:
    """Return `suite` as JSON lines: the header first, then each case with its digest."""
    header = {
        "schema": SCHEMA, "version": SCHEMA_VERSION, "name": suite.name, "case_count": len(suite.cases),
        "plan": dict(suite.plan), "infeasible": dict(suite.infeasible),
        "sources": [_source_record(one) for one in suite.sources],
    }  # fmt: skip
    return "".join(canonical_json(line) + "\n" for line in (header, *map(case_record, suite.cases)))


def load_text(text: str, where: str) -> Suite:
    """Return the suite that `text` holds.

    Args:
        where: file name for messages.

    Raises:
        SpecError: not a suite, of a newer schema version, cut short or changed by hand; the line is named.
    """
    first, _, rest = text.partition("\n")
    header = _object(first, f"{where}:1")
    if header.get("schema") != SCHEMA:
        raise SpecError(f"{where}: not a suite; write one with 'nearpeak suite build … --out {where}'")
    version = header.get("version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise SpecError(f"{where}: has {SCHEMA} version {version!r}; this nearpeak reads version {SCHEMA_VERSION}")
    lines = [(f"{where}:{number}", line) for number, line in enumerate(rest.split("\n"), start=2) if line.strip()]
    try:
        sources = tuple(_source(one) for one in header["sources"])
        stated = header["case_count"]
        name, plan = str(header["name"]), dict(header.get("plan", {}))
        infeasible = dict(header.get("infeasible", {}))
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{where}:1: the header is damaged ({error}); build it again") from None
    if stated != len(lines):
        raise SpecError(f"{where}: holds {len(lines)} cases, its header says {stated}; it was cut or changed")
    names = {one.name for one in sources}
    cases = tuple(_case(row, at, names) for at, row in lines)
    return Suite(name=name, plan=plan, infeasible=infeasible, sources=sources, cases=cases)


def is_suite(text: str) -> bool:
    """Say whether a text claims to be a suite of any version.

    >>> is_suite('{"name":"x","schema":"nearpeak.suite","version":9}')
    True
    """
    return f'"schema":"{SCHEMA}"' in text.partition("\n")[0].replace(" ", "")


def _source_record(source: Source) -> dict[str, object]:
    record = {
        "name": source.name, "digest": source.digest, "kind": source.kind, "calls": source.call_count,
        "uncovered": dict(source.uncovered), "origin": dict(source.origin),
    }  # fmt: skip
    return {key: value for key, value in record.items() if value}


def case_record(one: SuiteCase) -> dict[str, object]:
    """Return a case of a suite as plain data, as one line of the file holds it."""
    record: dict[str, object] = {
        "digest": one.case.digest,
        "case": one.case.record(),
        "why": [why.record() for why in one.why],
    }
    return record if one.chosen else record | {"left_out": True}


def _source(record: Mapping[str, Any]) -> Source:
    return Source(
        name=record["name"], digest=record["digest"], kind=record.get("kind", "usecase"),
        call_count=record.get("calls", 0), uncovered=record.get("uncovered", {}), origin=record.get("origin", {}),
    )  # fmt: skip


def _case(text: str, where: str, names: set[str]) -> SuiteCase:
    """Return the case of one line, refused when it is not the one that its digest names."""
    record = _object(text, where)
    try:
        given = dict(record["case"])
        case: Case = OPS[given.pop("op")].case(given.pop("phase"), **given)
        why = tuple(map(why_of, record["why"]))
        digest = record["digest"]
    except (SpecError, NotModelledError) as error:
        raise type(error)(f"{where}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{where}: needs digest, case and why ({type(error).__name__}: {error})") from None
    if digest != case.digest:
        raise SpecError(
            f"{where}: digest {str(digest)[:12]} is not that of the case, {case.digest[:12]}; build it again"
        )
    if not why or any(one.source not in names or one.kind not in REASONS for one in why):
        raise SpecError(f"{where}: every case needs reasons of a known kind from sources of the header")
    return SuiteCase(case=case, why=why, chosen=not record.get("left_out", False))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: not JSON ({error}); a suite is JSON lines") from None
    if not isinstance(data, dict):
        raise SpecError(f"{where}: is not an object; a suite is one object per line")
    return data
