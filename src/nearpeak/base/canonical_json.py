"""Canonical JSON of a value, and the SHA-256 digest that identifies it."""

import hashlib
import json

from nearpeak.base.input_files import json_value
from nearpeak.errors import SpecError


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of `value`: keys sorted, no white space, shortest floats, no NaN.

    >>> canonical_json({"b": 1, "a": [True, None, 0.1]})
    '{"a":[true,null,0.1],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parsed_once(text: str) -> object:
    """Return the value of a JSON text in which no object repeats a key, as the value of a repeated key is ambiguous.

    >>> parsed_once('{"m": 1, "m": 2}')
    Traceback (most recent call last):
    nearpeak.errors.SpecError: the key 'm' occurs twice

    Raises:
        SpecError: a key occurs twice in one object.
        ValueError: the text is not JSON.
    """
    return json_value(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise SpecError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return members


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, as 64 hexadecimal characters.

    >>> digest({"a": 1})[:12]
    '015abd7f5cc5'
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
