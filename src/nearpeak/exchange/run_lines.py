"""A run as JSON, as it goes from one store to another: every field checked, sizes and depth bounded."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.history import Device, Metric, Pairs, Revision, RunRecord, SampleSet, Scalar, Source, Testbed
from nearpeak.errors import SpecError

MOST_BYTES = 16 * 2**20
"""Size of a body that is read at all."""
MOST_DEPTH = 16
"""Lists and objects within each other."""
MOST_SETS, MOST_TEXT = 20_000, 10_000
"""Sets of samples of a run; characters of a text."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_UID = re.compile(r"[0-9a-f]{32}")


def run_record(one: RunRecord) -> dict[str, Any]:
    """Return a run as data that JSON holds; `parse_run` reads it."""
    return {
        "device": {**_fields(one.device), "settings": [list(pair) for pair in one.device.settings]},
        "samples": [_set_record(sample) for sample in one.samples],
        "source": {**_fields(one.source), "lost": list(one.source.lost)},
        "revision": None if one.revision is None else _fields(one.revision), "branch": one.branch,
        "stack": [list(pair) for pair in one.stack], "track": [list(pair) for pair in one.track],
        "started_ns": one.started_ns, "ended_ns": one.ended_ns, "trigger": one.trigger, "dirty": one.dirty,
        "facts": dict(one.facts),
    }  # fmt: skip


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _set_record(one: SampleSet) -> dict[str, Any]:
    return _fields(one) | {
        "metric": _fields(one.metric), "testbed": {"name": one.testbed.name, "policy": dict(one.testbed.policy)},
        "values": np.asarray(one.values).tolist(), "parameters": dict(one.parameters),
        "channels": {name: np.asarray(values).tolist() for name, values in one.channels.items()},
        "records": dict(one.records),
    }  # fmt: skip


def parse_json(data: bytes, *, most_bytes: int = MOST_BYTES) -> Any:
    """Return what a body of JSON says; one that is too large or too deep is refused before it is read.

    Raises:
        SpecError: it is too large, too deep, or no JSON.

    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    if len(data) > most_bytes:
        raise SpecError(f"body: {len(data)} bytes; at most {most_bytes}")
    depth = 0
    for sign in re.findall(rb"[\[\]{}]", _STRING.sub(b"", data)):
        depth += 1 if sign in b"[{" else -1
        if depth > MOST_DEPTH:
            raise SpecError(f"body: lists and objects are nested deeper than {MOST_DEPTH}")
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"body: is no JSON: {str(error)[:200]}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def parse_run(data: object) -> RunRecord:
    """Return the run that `data` states.

    Raises:
        SpecError: a field is missing, unknown, of the wrong type, too long, or contradicts another.
    """
    whole = _Reader(data, "run")
    try:
        found = RunRecord(
            device=_device(whole.inner("device")), samples=_samples(whole.items("samples", MOST_SETS)),
            source=_source(whole.inner("source")), revision=_revision(whole.inner("revision", optional=True)),
            branch=whole.text("branch", "main"), stack=whole.pairs("stack"), track=whole.pairs("track"),
            started_ns=whole.integer("started_ns", 0) or 0, ended_ns=whole.integer("ended_ns", None),
            trigger=whole.text("trigger", "manual"), dirty=whole.text("dirty", ""), facts=whole.scalars("facts"),
        )  # fmt: skip
    except OverflowError as error:
        raise SpecError(f"run: {error}") from None
    whole.done()
    return found


def _device(one: "_Reader") -> Device:
    texts = {name: one.text(name, "") for name in ("vendor", "architecture", "uuid", "partition", "host")}
    found = Device(name=one.text("name"), settings=one.pairs("settings"), **texts)
    one.done()
    return found


def _source(one: "_Reader") -> Source:
    uid = one.text("uid", "")
    if uid and not _UID.fullmatch(uid):
        raise SpecError(f"{one.where}.uid: {uid[:40]!r} is not 32 hexadecimal letters")
    found = Source(
        digest=one.text("digest"), importer=one.text("importer", "nearpeak"), version=one.integer("version", 1) or 0,
        selector=one.text("selector", ""), name=one.text("name", ""), lost=tuple(one.texts("lost")), uid=uid,
    )  # fmt: skip
    if not found.digest:
        raise SpecError(f"{one.where}.digest: is empty; it identifies the run")
    one.done()
    return found


def _revision(one: "_Reader | None") -> Revision | None:
    if one is None:
        return None
    texts = {name: one.text(name, "") for name in ("repository", "parent_sha", "author", "subject", "pull_request")}
    numbers = {name: one.integer(name, None) for name in ("position", "authored_ns", "committed_ns")}
    found = Revision(sha=one.text("sha"), **texts, **numbers)  # type: ignore[arg-type]
    one.done()
    return found


def _samples(items: Sequence["_Reader"]) -> tuple[SampleSet, ...]:
    return tuple(map(_sample, items))


def _sample(one: "_Reader") -> SampleSet:
    metric, bed = one.inner("metric"), one.inner("testbed")
    beside, kept = (one.inner(name, optional=True) for name in ("channels", "records"))
    found = SampleSet(
        case=one.text("case"), label=one.text("label"), metric=_metric(metric),
        testbed=Testbed(name=bed.text("name"), policy=bed.scalars("policy")), values=one.reals("values"),
        parameters=one.scalars("parameters"), workload=one.text("workload", ""), launch=one.integer("launch", 0) or 0,
        outcome=one.text("outcome", "budget"), note=one.text("note", ""), clock_hz=one.real("clock_hz"),
        channels={} if beside is None else {name: beside.reals(name) for name in beside.names()},
        records={} if kept is None else {name: kept.json_text(name) for name in kept.names()},
    )  # fmt: skip
    for part in (metric, bed, one, *(part for part in (beside, kept) if part)):
        part.done()
    return found


def _metric(one: "_Reader") -> Metric:
    usual = (("direction", "lower"), ("scale", "log"), ("kind", "time"))
    return Metric(name=one.text("name"), unit=one.text("unit"), **{name: one.text(name, word) for name, word in usual})


class _Reader:
    """An object of JSON whose fields are taken one by one; what is left over is refused."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise SpecError(f"{where}: is no object")
        self._left, self.where = dict(data), where

    def names(self) -> list[str]:
        return sorted(self._left)

    def done(self) -> None:
        if self._left:
            raise SpecError(f"{self.where}: field {sorted(self._left)[0][:60]!r} is not known")

    def _take(self, name: str, usual: object = ...) -> Any:
        found = self._left.pop(name, None)
        if found is None:
            if usual is ...:
                raise SpecError(f"{self.where}.{name[:60]}: is missing")
            return usual
        return found

    def inner(self, name: str, *, optional: bool = False) -> Any:
        found = self._take(name, None if optional else ...)
        return None if found is None else _Reader(found, f"{self.where}.{name}")

    def items(self, name: str, most: int) -> list["_Reader"]:
        found = self._list(name, most)
        return [_Reader(one, f"{self.where}.{name}[{place}]") for place, one in enumerate(found)]

    def _list(self, name: str, most: int, usual: object = ...) -> list[Any]:
        found = self._take(name, usual)
        if not isinstance(found, list) or len(found) > most:
            raise SpecError(f"{self.where}.{name[:60]}: is no list of at most {most}")
        return found

    def text(self, name: str, usual: object = ...) -> str:
        return _text(self._take(name, usual), f"{self.where}.{name}")

    def json_text(self, name: str) -> str:
        found = self._take(name)
        if not isinstance(found, str) or "\x00" in found:
            raise SpecError(f"{self.where}.{name[:60]}: is no text that holds JSON")
        try:
            parse_json(found.encode())
        except (SpecError, UnicodeEncodeError) as error:
            raise SpecError(f"{self.where}.{name[:60]}: {error}") from None
        return found

    def texts(self, name: str) -> list[str]:
        return [_text(one, f"{self.where}.{name}") for one in self._list(name, 1000, [])]

    def pairs(self, name: str) -> Pairs:
        rows = self._list(name, 2000, [])
        if not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise SpecError(f"{self.where}.{name}: is no list of pairs")
        found = [(_text(left, name), _text(right, name)) for left, right in rows]
        if len({left for left, _ in found}) != len(found):
            raise SpecError(f"{self.where}.{name}: names something twice")
        return tuple(found)

    def integer(self, name: str, usual: int | None) -> int | None:
        found = self._take(name, usual)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 62:
            raise SpecError(f"{self.where}.{name}: is no whole number from 0 to 2^62")
        return found

    def real(self, name: str) -> float | None:
        found = self._take(name, None)
        return None if found is None else _real(found, f"{self.where}.{name}")

    def reals(self, name: str) -> tuple[float, ...]:
        return tuple(_number(one, f"{self.where}.{name}") for one in self._list(name, 4_000_000))

    def scalars(self, name: str) -> dict[str, Scalar]:
        found = self._take(name, {})
        where = f"{self.where}.{name}"
        if not isinstance(found, dict) or len(found) > 500:
            raise SpecError(f"{where}: is no object of at most 500 fields")
        return {_text(key, where): _scalar(value, where) for key, value in found.items()}


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\x00" in value:
        raise SpecError(f"{where[:100]}: is no text of at most {MOST_TEXT} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SpecError(f"{where[:100]}: holds half of a surrogate pair") from None
    return value


def _real(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300 or not math.isfinite(value):
        raise SpecError(f"{where[:100]}: is no finite number")
    return float(value)


def _number(value: object, where: str) -> float:
    """Return a sample; whole numbers stay whole, as counts beyond 2^53 are no floats."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    return _real(value, where)


def _scalar(value: object, where: str) -> Scalar:
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 62:
        return value
    return _real(value, where)
