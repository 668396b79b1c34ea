"""Result files as text: measurements as plain data and back, samples in full, all that follows from them left out."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from nearpeak.canon import digest
from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, Fallback, Measurement, Method, Outcome
from nearpeak.core.suite import why_of
from nearpeak.core.validation import CheckResult, Validation, WorstElement
from nearpeak.errors import SpecError
from nearpeak.exchange.telemetry_lines import telemetry_of, telemetry_record
from nearpeak.ops import OPS

SCHEMA_VERSION = 1
# 1: one JSON object per line, `kind` environment or measurement; a measurement names its environment by digest.
#    spans_ns, telemetry and details came later; a line without them has none.
_SAMPLES = ("samples_s", "cpu_samples_s", "host_samples_s", "warmup_s", "clock_probes_s")
_UNUSUAL = {"activity_s": None, "launch": 1, "details": ""}
"""Fields that are written only where they say something."""
_PLAIN = ("target", "runner", "call_count", "timer_s", "note", "algorithm")


def key_of(case: Case, runner: str, method: Mapping[str, Any]) -> str:
    """Return the identity under which a result is stored once: what ran, what ran it, and how it was asked to be timed.

    >>> key_of(Case(op="fill", phase="forward", axes=(), dtypes=()), "null", {"cache": "hot"})[:8]
    'ca3fc65c'
    """
    return digest({"case": case.digest, "runner": runner, "method": dict(method)})[:32]


def environment_record(environment: Environment) -> dict[str, Any]:
    """Return the line that says what machine and software were."""
    return {"kind": "environment", "schema": SCHEMA_VERSION, "digest": environment.digest, **environment.record()}


def measurement_record(measurement: Measurement, key: str) -> dict[str, Any]:
    """Return the line of one measurement."""
    one = measurement
    record: dict[str, Any] = {
        "kind": "measurement", "schema": SCHEMA_VERSION, "key": key, "case": one.case.record(),
        "case_digest": one.case.digest, "outcome": one.outcome.value,
        "environment": one.environment.digest if one.environment else None,
    }  # fmt: skip
    record |= {name: getattr(one, name) for name in _PLAIN}
    record |= {name: list(getattr(one, name)) for name in _SAMPLES}
    record["method"] = dataclasses.asdict(one.method) if one.method else None
    record["phases_s"] = dict(one.phases_s)
    record["ledger"] = [dataclasses.asdict(row) for row in one.ledger]
    record["validation"] = plain(one.validation)
    record |= {name: getattr(one, name) for name, usual in _UNUSUAL.items() if getattr(one, name) != usual}
    if one.why:
        record["why"] = [why.record() for why in one.why]
    record["spans_ns"] = [list(span) for span in one.spans_ns]
    record["telemetry"] = telemetry_record(one.telemetry) if one.telemetry else None
    return record


def measurement_of(record: Mapping[str, Any], environments: Mapping[str, Environment], where: str) -> Measurement:
    """Return the measurement of a line.

    Raises:
        SpecError: the line is of another schema, or its case is not the one whose digest it states.
    """
    if record.get("schema") != SCHEMA_VERSION:
        raise SpecError(f"{where}: schema {record.get('schema')!r}; this version reads {SCHEMA_VERSION}")
    try:
        arguments = dict(record["case"])
        case = OPS[arguments.pop("op")].case(arguments.pop("phase"), **arguments)
        if case.digest != record["case_digest"]:
            raise SpecError(f"{where}: its case is not the one that its digest states; was it edited?")
        method = Method(**record["method"]) if record["method"] else None
        plain: dict[str, Any] = {name: record[name] for name in _PLAIN}
        plain |= {name: tuple(record[name]) for name in _SAMPLES}
        plain |= {name: record.get(name, usual) for name, usual in _UNUSUAL.items()}
        return Measurement(
            case=case, outcome=Outcome(record["outcome"]), method=method,
            environment=environments.get(record["environment"]), phases_s=dict(record["phases_s"]),
            ledger=tuple(Fallback(**row) for row in record["ledger"]), validation=record["validation"],
            spans_ns=tuple((str(n), int(a), int(b)) for n, a, b in record.get("spans_ns", ())),
            telemetry=telemetry_of(record["telemetry"], where) if record.get("telemetry") else None,
            why=tuple(map(why_of, record.get("why", ()))), **plain,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{where}: no measurement: {type(error).__name__} {error}") from None


def environment_of(record: Mapping[str, Any]) -> Environment:
    """Return the environment of a line."""
    names = {field.name for field in dataclasses.fields(Environment)}
    known = {name: value for name, value in record.items() if name in names}
    known |= {name: tuple(record.get(name, {}).items()) for name in ("packages", "settings")}
    return Environment(**known)


def validation_of(record: Mapping[str, Any], case: Case) -> Validation:
    """Return the record of the contract on a case as `measurement_record` writes it."""
    results = []
    for row in record["results"]:
        worst = row["worst"] and WorstElement(**{**row["worst"], "offset": tuple(row["worst"]["offset"])})
        results.append(CheckResult(**{**row, "worst": worst}))
    return Validation(**{**record, "case": case, "results": tuple(results)})


def parse_results(text: str, name: str) -> tuple[dict[str, Environment], dict[str, Measurement]]:
    """Return the environments by digest and the measurements by key that the whole lines of a result file hold.

    Args:
        name: what errors call the file.

    Raises:
        SpecError: a line is none of a result file, or a result stands twice.
    """
    environments: dict[str, Environment] = {}
    found: dict[str, Measurement] = {}
    for number, line in enumerate(text.split("\n"), 1):  # what programs say may hold what else ends lines, as U+2028
        if not line.strip():
            continue
        where = f"{name}:{number}"
        record = _object(line, where)
        if record["kind"] == "environment":
            environments[record["digest"]] = environment_of(record)
        elif record["key"] in found:
            raise SpecError(f"{where}: the same result stands twice; remove one")
        else:
            found[record["key"]] = measurement_of(record, environments, where)
    return environments, found


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"{where}: not JSON ({error}); results are one object a line, and without a line its case runs again"
        ) from None
    wanted = {"environment": "digest", "measurement": "key"}
    if not isinstance(record, dict) or wanted.get(str(record.get("kind")), "kind") not in record:
        raise SpecError(f"{where}: no line of a result file; it needs kind=measurement and key")
    if record["kind"] not in wanted:
        raise SpecError(f"{where}: kind {record['kind']!r} is not known; there are {', '.join(wanted)}")
    return record


def plain(value: Any) -> Any:
    """Return a value as plain data: dataclasses by their fields, cases by their digests."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Case):
        return value.digest
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (tuple, list)) else value
