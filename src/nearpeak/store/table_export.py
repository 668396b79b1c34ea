"""Export of a store to Parquet (with DuckDB) or CSV files, with a manifest of tables and columns."""

import csv
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.folders import text_of
from nearpeak.base.input_files import json_value, text_of_file
from nearpeak.base.spreadsheet_cells import plain_cells
from nearpeak.base.table_engine import table_engine
from nearpeak.errors import SpecError, StoreError
from nearpeak.store.database import Store
from nearpeak.store.sample_blobs import unpacked
from nearpeak.store.sql_dialect import reading
from nearpeak.store.table_schema import HEAD, TABLES

MANIFEST = "manifest.json"
_PART_ROWS = 2_000_000
"""Samples of one file: what is held in memory at once."""
_LEFT_OUT = frozenset({"sample_blob", "channel_blob", "record_blob", "store_info", "api_token"})
Columns = Mapping[str, Sequence[Any] | npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    folder: Path
    """Where."""
    rows_count: Mapping[str, int]
    """Rows of each table."""
    size_bytes: int
    """All files together."""


def export(store: Store, folder: Path, *, form: str | None = None, runs: Sequence[int] | None = None) -> Exported:
    """Write every table, and samples one per row, to `folder`, which appears whole or not at all.

    Args:
        form: `parquet` or `csv`; by default Parquet where DuckDB is installed.
        runs: samples of these runs only.

    Raises:
        SpecError: the folder exists, or the format is neither.
        StoreError: samples are damaged on disk.
    """
    if folder.exists():
        raise SpecError(f"{folder}: exists already; an export replaces nothing")
    if not folder.resolve().parent.is_dir():
        raise SpecError(f"{folder}: its folder does not exist")
    form = form or ("parquet" if has_duckdb() else "csv")
    if form not in ("parquet", "csv"):
        raise SpecError(f"--format {form!r}: is neither parquet nor csv")
    if form == "parquet" and text_of(folder.resolve()) != str(folder.resolve()):
        raise SpecError(f"{folder}: its name is no text, which Parquet's writer needs; choose another, or --format csv")
    with tempfile.TemporaryDirectory(dir=folder.resolve().parent, prefix=".nearpeak-") as place:
        part = Path(place) / "export"
        part.mkdir()
        with reading(store.engine, store.name) as connection:
            counts = _write_tables(connection, part, form) | {"sample": _write_samples(connection, part, form, runs)}
        _write_manifest(part, store.name, form, counts)
        part.replace(folder)
    return Exported(folder=folder, rows_count=counts, size_bytes=sum(path.stat().st_size for path in _files(folder)))


def verify(folder: Path) -> dict[str, int]:
    """Return the rows of each table of an export, after reading all of its files again.

    Raises:
        StoreError: a file is missing or is not what was written.
    """
    manifest = json_value(text_of_file(folder / MANIFEST))
    for name, known in manifest["files"].items():
        path = folder / name
        if not path.is_file() or sha256_of(path) != known["sha256"]:
            raise StoreError(f"{path}: is missing, or not what was written; the archive cannot be trusted")
        if _rows_of(path) != known["rows"]:
            raise StoreError(f"{path}: holds other rows than its manifest says; the archive cannot be trusted")
    return dict(manifest["rows"])


def has_duckdb() -> bool:
    """Say whether Parquet can be written."""
    from importlib.util import find_spec

    return find_spec("duckdb") is not None


def read_samples(folder: Path) -> dict[tuple[int, int, int], npt.NDArray[Any]]:
    """Return the samples of an export by run, series and launch, in the order of their taking."""
    samples: dict[tuple[int, int, int], list[Any]] = {}
    for path in sorted(folder.glob("table=sample/part-*")):
        rows = islice(_csv_rows(path), 1, None) if path.suffix == ".csv" else _parquet_rows(path, "*")
        for run, series, launch, _, value in rows:
            samples.setdefault((int(run), int(series), int(launch)), []).append(float(value))
    return {key: np.array(values) for key, values in samples.items()}


def _write_tables(connection: Connection, part: Path, form: str) -> dict[str, int]:
    counts = {}
    for name, table in TABLES.items():
        if name not in _LEFT_OUT:
            rows = connection.execute(select(table)).all()
            columns = {column.name: [row[place] for row in rows] for place, column in enumerate(table.columns)}
            counts[name] = len(rows)
            if rows:
                _write(part / f"table={name}", 0, columns, form)
    return counts


def _write_samples(connection: Connection, part: Path, form: str, runs: Sequence[int] | None) -> int:
    """Write one row for each sample, in files of bounded size; return how many there are."""
    total, number, held, held_rows = 0, 0, [], 0
    m, b = TABLES["measurement"].c, TABLES["sample_blob"].c
    query = select(m.run_id, m.series_id, m.launch, b.format, b.crc32, b.data)
    query = query.join_from(TABLES["measurement"], TABLES["sample_blob"], m.sample_id == b.id)
    blobs = query if runs is None else query.where(m.run_id.in_(list(runs)))
    for run, series, launch, *blob in connection.execution_options(yield_per=2000).execute(blobs):
        values = unpacked(f"run {run}, series {series}", *blob).astype(np.float64)
        held.append((run, series, launch, values))
        held_rows += len(values)
        if held_rows >= _PART_ROWS:
            _write(part / "table=sample", number, _long(held), form)
            total, number, held, held_rows = total + held_rows, number + 1, [], 0
    if held:
        _write(part / "table=sample", number, _long(held), form)
    return total + held_rows


def _long(held: Sequence[tuple[int, int, int, npt.NDArray[Any]]]) -> Columns:
    sizes = [len(values) for *_, values in held]
    keys = {
        name: np.repeat(np.array([row[place] for row in held], dtype=np.int64), sizes)
        for place, name in enumerate(("run_id", "series_id", "launch"))
    }
    positions = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
    return {**keys, "place": positions, "value": np.concatenate([values for *_, values in held])}


def _write(folder: Path, number: int, columns: Columns, form: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"part-{number}.{form}"
    if form == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            plain = [c.tolist() if isinstance(c, np.ndarray) else plain_cells(c) for c in columns.values()]
            writer.writerows(zip(*plain, strict=True))
        return
    with table_engine() as connection:
        data = {name: _typed(column) for name, column in columns.items()}
        connection.register("data", data)
        target = str(path).replace("'", "''")
        connection.execute(f"COPY (SELECT * FROM data) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


def _typed(column: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column as DuckDB reads it: numbers with a mask for what is missing, text as objects."""
    if isinstance(column, np.ndarray):
        return column
    present = [value for value in column if value is not None]
    kind = type(present[0]) if present else str
    if kind not in (int, float):
        return np.array(column, dtype=object)
    filled = np.array(
        [kind(0) if value is None else value for value in column], dtype=np.int64 if kind is int else float
    )
    if len(present) == len(column):
        return filled
    return np.ma.array(filled, mask=[value is None for value in column])


def _write_manifest(part: Path, name: str, form: str, counts: Mapping[str, int]) -> None:
    files = {
        str(path.relative_to(part)): {"sha256": sha256_of(path), "rows": _rows_of(path), "bytes": path.stat().st_size}
        for path in _files(part)
    }
    record = {
        "tool": f"nearpeak {version('nearpeak')}", "schema": HEAD, "store": text_of(name), "format": form,
        "rows": dict(counts), "files": files,
    }  # fmt: skip
    (part / MANIFEST).write_text(canonical_json(record) + "\n", encoding="utf-8")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def sha256_of(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, "sha256").hexdigest())


def _rows_of(path: Path) -> int:
    if path.suffix == ".csv":
        return sum(1 for _ in _csv_rows(path)) - 1
    return int(_parquet_rows(path, "count(*)")[0][0])


def _csv_rows(path: Path) -> Iterator[Sequence[Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.reader(file)


def _parquet_rows(path: Path, what: str) -> Sequence[Sequence[Any]]:
    """Return the columns `what` of a Parquet file; `table=` in the name of its folder is no column of it."""
    with table_engine() as connection:
        statement = f"SELECT {what} FROM read_parquet(?, hive_partitioning = false)"
        return list(connection.execute(statement, [str(path)]).fetchall())
