"""DuckDB in memory, with what it cannot hold there in a folder of this user alone."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nearpeak.errors import MissingExtraError


@contextmanager
def table_engine() -> Iterator[Any]:
    """Yield a connection to an empty database in memory.

    What does not fit is written to a new temporary folder. DuckDB's own choice is `.tmp` in the working folder, which
    another user may have made first where all may write, and would then read what lies in it.

    Raises:
        MissingExtraError: DuckDB is not installed.

    Source: https://duckdb.org/docs/stable/configuration/overview, temp_directory.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("Parquet needs DuckDB; install nearpeak[tables]") from None
    with (
        tempfile.TemporaryDirectory(prefix="nearpeak-duckdb-") as folder,
        duckdb.connect(config={"temp_directory": folder}) as connection,
    ):
        yield connection
