"""One canonical JSON text per value, and the digest that identifies it."""

import hashlib
import json


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of `value`: keys sorted, no white space, shortest floats, no NaN.

    >>> canonical_json({"b": 1, "a": [True, None, 0.1]})
    '{"a":[true,null,0.1],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, as 64 hexadecimal characters.

    >>> digest({"a": 1})[:12]
    '015abd7f5cc5'
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
