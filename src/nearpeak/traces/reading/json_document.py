"""Whole JSON documents up to a size limit, decompressed, with truncated ends closed."""

from pathlib import Path
from typing import Any

from nearpeak.core.traces.trace import Loss
from nearpeak.errors import SpecError
from nearpeak.exchange.partial_json import partial_json
from nearpeak.traces.reading.byte_stream import blocks

MOST_BYTES = 1 << 28


def document_of(path: Path) -> tuple[Any, list[Loss]]:
    """Return the document of a file and what was damaged.

    Raises:
        SpecError: it is no JSON, or larger than 256 MiB unpacked.
    """
    losses: list[Loss] = []
    data = bytearray()
    for block in blocks(path, losses):
        data += block
        if len(data) > MOST_BYTES:
            raise SpecError(
                f"{path.name}: is larger than {MOST_BYTES >> 20} MiB, which are read at once; export SQLite"
            )
    try:
        document, damage = partial_json(data.decode("utf-8", "replace").removeprefix("\ufeff"))
    except ValueError as error:
        raise SpecError(f"{path.name}: {error}") from None
    if damage:
        losses.append(Loss(what="dropped", kind="end of the file", record_count=1, example=f"the JSON {damage}"))
    return document, losses
