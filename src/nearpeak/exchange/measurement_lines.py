"""JSON lines of result files: measurements with all samples, and the environments that they ran in."""

from collections.abc import Mapping
from typing import Any

from nearpeak.base.canonical_json import digest
from nearpeak.base.input_files import json_value
from nearpeak.core.answers.suite import WHY, Why
from nearpeak.core.records.converter import Converter
from nearpeak.core.records.record_codec import Codec, Schema, Shape, defaulted
from nearpeak.core.runs.measurement import ENVIRONMENTS, Environment, Measurement
from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.core.runs.validation import Validation
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.exchange.telemetry_lines import TELEMETRY
from nearpeak.ops import case_of

# 1: one JSON object per line, `kind` environment or measurement; a measurement names its environment by digest.
#    spans_ns, telemetry and details came later; a line without them has none.
_ADVICE = "measure again"
_ENVIRONMENT = Schema(
    kind="environment", version=1, title="the environment of a result", advice=_ADVICE, version_key="schema"
)
_MEASUREMENT = Schema(kind="measurement", version=1, title="a result", advice=_ADVICE, version_key="schema")
_UNUSUAL = ("activity_s", "launch", "details", "why")
"""Fields that are written only if they differ from their default."""
_CODEC = Codec(
    types={Case: Converter(Case.record, lambda case: case), Telemetry: TELEMETRY},
    shapes={
        Measurement: Shape(
            brief=_UNUSUAL,
            required=set(defaulted(Measurement)) - {*_UNUSUAL, "spans_ns", "telemetry"},
            fields={
                "environment": Converter(lambda value: value.digest if value else None, lambda environment: environment)
            },
        ),
        Validation: Shape(fields={"case": Codec().converter(Case)}),
        Why: WHY,
    },
)
"""Records of measurements get case and environment before they are read; validations hold their case field by field."""
VALIDATION = _CODEC.converter(Validation)
"""Validations as plain data."""


def key_of(case: Case, runner: str, method: Mapping[str, Any]) -> str:
    """Return the identity under which a result is stored once: case, runner and timing method.

    >>> key_of(Case(op="fill", phase="forward", axes=(), dtypes=()), "null", {"cache": "hot"})[:8]
    'ca3fc65c'
    """
    return digest({"case": case.digest, "runner": runner, "method": dict(method)})[:32]


def environment_record(environment: Environment) -> dict[str, Any]:
    """Return the line that describes machine and software."""
    return {**_ENVIRONMENT.head(), "digest": environment.digest, **environment.record()}


def measurement_record(measurement: Measurement, key: str) -> dict[str, Any]:
    """Return the line of one measurement."""
    digests = {"key": key, "case_digest": measurement.case.digest}
    return {**_MEASUREMENT.head(), **digests, **_CODEC.plain(measurement)}


def measurement_of(record: Mapping[str, Any], environments: Mapping[str, Environment], where: str) -> Measurement:
    """Return the measurement of a line.

    Raises:
        SpecError: the line is of another schema, or its case is not the one whose digest it states.
    """
    fields = _MEASUREMENT.current(record, where)
    try:
        case = fields["case"] = case_of(fields.get("case"))
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    if case.digest != fields.get("case_digest"):
        raise SpecError(f"{where}: its case is not the one that its digest states; was it edited?")
    fields["environment"] = environments.get(fields.get("environment") or "")
    measurement: Measurement = _CODEC.value(fields, Measurement, where)
    return measurement


def environment_of(record: Mapping[str, Any], where: str = "environment") -> Environment:
    """Return the environment of a line.

    Raises:
        SpecError: it is none, or of another schema.
    """
    environment: Environment = ENVIRONMENTS.value(_ENVIRONMENT.current(record, where), Environment, where)
    return environment


def parse_results(text: str, name: str) -> tuple[dict[str, Environment], dict[str, Measurement]]:
    """Return the environments by digest and the measurements by key that the whole lines of a result file hold.

    Args:
        name: what errors call the file.

    Raises:
        SpecError: a line does not belong to a result file, or a result occurs twice.
    """
    environments: dict[str, Environment] = {}
    measurements: dict[str, Measurement] = {}
    for number, line in enumerate(text.split("\n"), 1):  # output of programs may hold other line ends, such as U+2028
        if not line.strip():
            continue
        where = f"{name}:{number}"
        record = _object(line, where)
        if record["kind"] == "environment":
            environments[record["digest"]] = environment_of(record, where)
        elif record["key"] in measurements:
            raise SpecError(f"{where}: the same result occurs twice; remove one")
        else:
            measurements[record["key"]] = measurement_of(record, environments, where)
    return environments, measurements


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json_value(line)
    except ValueError as error:
        raise SpecError(
            f"{where}: not JSON ({error}); results are one object a line, and without a line its case runs again"
        ) from None
    wanted = {"environment": "digest", "measurement": "key"}
    if not isinstance(record, dict) or wanted.get(str(record.get("kind")), "kind") not in record:
        raise SpecError(f"{where}: no line of a result file; it needs kind=measurement and key")
    if record["kind"] not in wanted:
        raise SpecError(f"{where}: kind {record['kind']!r} is not known; there are {', '.join(wanted)}")
    return record
