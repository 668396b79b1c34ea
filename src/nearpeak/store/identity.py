"""Identities that hold in every store."""

import secrets
import time


def new_uid() -> str:
    """Return a UUID of version 7 (RFC 9562, section 5.7): milliseconds since 1970, then 74 random bits.

    Later ones sort behind earlier ones, so that an index grows at its end.

    >>> len(new_uid()), new_uid()[14]
    (36, '7')
    """
    time_ms = time.time_ns() // 1_000_000
    bits = (time_ms << 80) | (0x7 << 76) | (secrets.randbits(12) << 64) | (0b10 << 62) | secrets.randbits(62)
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
