"""JSON form of a run for transfer between stores: every field validated, sizes and nesting limited."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.history.stored_run import Pairs, RunRecord, SampleSet, Scalar, Source
from nearpeak.core.records.converter import Converter, MisfitError
from nearpeak.core.records.record_codec import Codec, Shape
from nearpeak.errors import SpecError

MOST_BYTES = 16 * 2**20
"""Largest body that is read."""
MOST_DEPTH = 16
"""Deepest nesting of lists and objects."""
MOST_PARTS = 400_000
"""Lists and objects of a body: each takes some thirty times the bytes that state it."""
MOST_SETS, MOST_TEXT = 20_000, 10_000
"""Sets of samples of a run; characters of a text."""
_UID = re.compile(r"[0-9a-f]{32}")


def run_record(run: RunRecord) -> dict[str, Any]:
    """Return a run as data that JSON holds; `parse_run` reads it."""
    record: dict[str, Any] = _CODEC.plain(run)
    return record


def parse_json(data: bytes, *, most_bytes: int = MOST_BYTES) -> Any:
    """Return the data of a JSON body; bodies that are too large or too deeply nested are refused before parsing.

    Raises:
        SpecError: it is too large, too deep, or no JSON.

    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    if len(data) > most_bytes:
        raise SpecError(f"body: {len(data)} bytes; at most {most_bytes}")
    if data.count(b"[") + data.count(b"{") > MOST_PARTS:
        raise SpecError(f"body: holds more than {MOST_PARTS} lists and objects")
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except RecursionError:
        raise SpecError(f"body: lists and objects are nested deeper than {MOST_DEPTH}") from None
    except ValueError as error:
        raise SpecError(f"body: is no JSON: {str(error)[:200]}") from None
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Refuse what is nested too deeply, level by level."""
    level = [value] if isinstance(value, (list, dict)) else []
    for _ in range(MOST_DEPTH):
        parts = (part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole))
        level = [part for part in parts if isinstance(part, (list, dict))]
    if level:
        raise SpecError(f"body: lists and objects are nested deeper than {MOST_DEPTH}")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def parse_run(data: object) -> RunRecord:
    """Return the run that `data` states.

    Raises:
        SpecError: a field is missing, unknown, of the wrong type, too long, or contradicts another.
    """
    samples = data.get("samples") if isinstance(data, dict) else None
    if isinstance(samples, list) and len(samples) > MOST_SETS:
        raise SpecError(f"run.samples: is no list of at most {MOST_SETS}")
    run: RunRecord = _CODEC.value(data, RunRecord, "run")
    return run


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\x00" in value:
        raise MisfitError(f"is no text of at most {MOST_TEXT} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise MisfitError("holds half of a surrogate pair") from None
    return value


def _digest(value: object) -> str:
    if not _text(value):
        raise MisfitError("is empty; it identifies the run")
    return _text(value)


def _uid(value: object) -> str:
    if _text(value) and not _UID.fullmatch(_text(value)):
        raise MisfitError(f"{_text(value)[:40]!r} is not 32 hexadecimal letters")
    return _text(value)


def _json_text(value: object) -> str:
    if not isinstance(value, str) or "\x00" in value:
        raise MisfitError("is no text that holds JSON")
    try:
        parse_json(value.encode())
    except UnicodeEncodeError as error:
        raise MisfitError(str(error)) from None
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise MisfitError("is no whole number from 0 to 2^62")
    return value


def _signed(value: object) -> int | float:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else _real(value)


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300 or not math.isfinite(value):
        raise MisfitError("is no finite number")
    return float(value)


def _sample(value: object) -> float:
    """Return a sample; whole numbers stay whole, as counts beyond 2^53 are no floats."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    return _real(value)


def _limited(converter: Converter, most: int, kind: type[list[Any]] | type[dict[str, Any]] = list) -> Converter:
    """Return a converter that refuses lists or objects of more than `most` parts before it reads them."""

    def read(raw: Any) -> Any:
        if not isinstance(raw, kind) or len(raw) > most:
            raise MisfitError(f"is no {'list' if kind is list else 'object'} of at most {most}")
        return converter.read(raw)

    return Converter(converter.write, read)


def _named_once(read: Callable[[Any], Pairs]) -> Callable[[Any], Pairs]:
    def pairs(raw: Any) -> Pairs:
        named_pairs = read(raw)
        if len(dict(named_pairs)) != len(named_pairs):
            raise MisfitError("names something twice")
        return named_pairs

    return pairs


def _scalars(raw: Mapping[str, Any]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = _VALUES.converter(Mapping[str, Scalar]).read(raw)
    for name in scalars:
        _text(name)
    return scalars


_TEXT = Converter(None, _text)
_VALUES = Codec(types={str: _TEXT, int: Converter(None, _signed), float: Converter(None, _real)})
_SAMPLES = Codec(types={float: Converter(None, _sample)}).converter(tuple[float, ...])
_PAIRS = _VALUES.converter(Pairs)
_CODEC = Codec(
    types={
        str: _TEXT,
        int: Converter(None, _count),
        float: Converter(None, _real),
        Pairs: _limited(Converter(_PAIRS.write, _named_once(_PAIRS.read)), 2000),
        tuple[str, ...]: _limited(_VALUES.converter(tuple[str, ...]), 1000),
        Sequence[float]: _limited(Converter(lambda values: np.asarray(values).tolist(), _SAMPLES.read), 4_000_000),
        Mapping[str, Scalar]: _limited(Converter(dict, _scalars), 500, dict),
    },
    shapes={
        Source: Shape(fields={"digest": Converter(None, _digest), "uid": Converter(None, _uid)}),
        SampleSet: Shape(
            fields={"records": Codec(types={str: Converter(None, _json_text)}).converter(Mapping[str, str])}
        ),
    },
    strict=True,
    null_is_absent=True,
)
