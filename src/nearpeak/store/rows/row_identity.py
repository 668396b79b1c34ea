"""Identities of rows that are the same in every store, independent of row numbers."""

import json
import secrets
import time

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.history.stored_run import Source
from nearpeak.errors import StoreError


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


def importer_text(source: Source) -> str:
    """Return what read a run and in which version, with the part of the file that it is, where there is one.

    >>> importer_text(Source(digest="a")), importer_text(Source(digest="a", importer="nvbench", selector="device=1"))
    ('nearpeak 1', '["nvbench",1,"device=1"]')
    """
    if source.selector:
        return canonical_json([source.importer, source.version, source.selector])
    return f"{source.importer} {source.version}"


def importer_of(text: str) -> tuple[str, int, str]:
    """Return importer, version and selector of such a text; one without a selector ends with its version.

    Raises:
        StoreError: it was changed on disk.

    >>> importer_of("my tool 2"), importer_of('["nvbench",1,"device=1"]')
    (('my tool', 2, ''), ('nvbench', 1, 'device=1'))
    """
    try:
        if text.endswith("]"):
            importer, number, selector = json.loads(text)
            return str(importer), int(number), str(selector)
        importer, _, version = text.rpartition(" ")
        return importer, int(version), ""
    except (ValueError, TypeError):
        raise StoreError(f"run: what read it, {text[:40]!r}, is damaged on disk; restore a backup") from None
