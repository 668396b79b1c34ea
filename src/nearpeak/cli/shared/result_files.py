"""Error messages for benchmark result files passed where a command expects a model or trace."""

import re
from pathlib import Path

from nearpeak.errors import NearpeakError, SpecError

_MOST_BYTES = 64 << 20
"""Size limit in bytes of files whose format is detected."""
_TUNER = re.compile(rb'"(cache|results)"\s*:.*"(block_size_x|configuration|tune_params)"', re.DOTALL)
"""Pattern in the first bytes of Kernel Tuner's cache and result files."""


def refuse_results(path: Path) -> None:
    """Refuse a benchmark's result file, naming its format; accept any other file.

    Raises:
        SpecError: it is one; says which tool writes it and which command takes it.
    """
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return
    from nearpeak.store.importers import IMPORTERS, file_bytes, importer_of  # which imports the database

    try:
        data = file_bytes(path)
    except NearpeakError:
        return
    if data.lstrip()[:1] not in (b"{", b"["):
        return
    what = "is neither a model nor a trace, but a result file"
    if any(IMPORTERS[name].recognises(data) for name in IMPORTERS):
        importer = importer_of(data, path.name)
        raise SpecError(f"{path.name}: {what} ({importer.title}); 'nearpeak store import' takes it")
    if _TUNER.search(data[: 1 << 16]):
        raise SpecError(
            f"{path.name}: {what} of Kernel Tuner, times of configurations of one kernel, which no command reads;"
            " 'nearpeak store import' takes those of nvbench and pytest-benchmark"
        )
