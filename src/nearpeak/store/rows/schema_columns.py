"""Column types and table options of SQLite and PostgreSQL that migrations use; their meaning never changes."""

from collections.abc import Callable, Iterable
from functools import cache

from sqlalchemy import REAL as SQLITE_REAL
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

Declaration = Callable[[MetaData], None]
"""What adds the tables of a version."""
INTEGER: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on both engines; SQLite numbers rows by themselves only where the type is called INTEGER."""
REAL: TypeEngine[float] = Double().with_variant(SQLITE_REAL(), "sqlite")
"""64 bits on both engines."""


def table(metadata: MetaData, name: str, *items: SchemaItem) -> Table:
    """Add a table; SQLite refuses in it values of another type than their column's, as PostgreSQL does."""
    return Table(name, metadata, *items, sqlite_strict=True)


def clustered(metadata: MetaData, name: str, *items: SchemaItem) -> Table:
    """Add a table whose rows lie in the order of their primary key, without a second index for it."""
    return Table(name, metadata, *items, sqlite_strict=True, sqlite_with_rowid=False)


def make(connection: Connection, *declared: Declaration) -> None:
    """Make the tables that the last of `declared` adds to those of the ones before it."""
    metadata, new = _added(declared)
    metadata.create_all(connection, tables=new, checkfirst=False)


@cache
def _added(declared: tuple[Declaration, ...]) -> tuple[MetaData, list[Table]]:
    """Return all tables and the last declaration's: of every store that is made they are the same."""
    metadata = MetaData()
    for declare in declared[:-1]:
        declare(metadata)
    known = set(metadata.tables)
    declared[-1](metadata)
    return metadata, [table for name, table in metadata.tables.items() if name not in known]


def key() -> Column[int]:
    """Return the column of a number that the engine gives to each row."""
    return Column("id", INTEGER, primary_key=True)


def to(table: str, *, name: str = "", primary: bool = False, optional: bool = False) -> Column[int]:
    """Return a column that refers to a row of `table`, which cannot be deleted while it does."""
    reference = ForeignKey(f"{table}.id", ondelete="RESTRICT")
    if primary:
        return Column(name or f"{table}_id", INTEGER, reference, primary_key=True, autoincrement=False)
    return Column(name or f"{table}_id", INTEGER, reference, nullable=optional)


def text(name: str, *, optional: bool = False) -> Column[str]:
    """Return a column of text, empty by default."""
    return Column(name, Text, nullable=optional)


def integer(name: str, *, optional: bool = False) -> Column[int]:
    """Return a column of whole numbers."""
    return Column(name, INTEGER, nullable=optional)


def real(name: str, *, optional: bool = False) -> Column[float]:
    """Return a column of numbers; what failed is NULL, never NaN."""
    return Column(name, REAL, nullable=optional)


def blob(name: str) -> Column[bytes]:
    """Return a column of bytes."""
    return Column(name, LargeBinary, nullable=False)


def place(name: str) -> Column[int]:
    """Return a column of a primary key that numbers rows from 0 within something else."""
    return Column(name, INTEGER, primary_key=True, autoincrement=False)


def one_of(name: str, values: Iterable[str]) -> tuple[Column[str], CheckConstraint]:
    """Return a column of text that holds one of `values`, and the constraint that sees to it."""
    words = ", ".join(f"'{value}'" for value in values)
    return text(name), CheckConstraint(f"{name} IN ({words})", name=f"{name}_known")
