"""Schema version of a store, and its upgrade to the version of this nearpeak."""

from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from nearpeak.errors import SchemaVersionError, StoreError
from nearpeak.store.sql_dialect import is_sqlite
from nearpeak.store.table_schema import HEAD

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x6E70_6B31
"""Advisory lock of PostgreSQL that one migration holds at a time."""


def version_of(connection: Connection, prefix: str = "") -> str | None:
    """Return the version of the tables; none where there are none.

    Args:
        prefix: start of the error message.

    Raises:
        StoreError: there are tables, but not those of a store.
    """
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if not {"alembic_version", "store_info"} <= names:
        raise StoreError(
            f"{prefix}is a database of something else: it has tables, but not those of a store; name another"
        )
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def check_version(name: str, version: str | None) -> None:
    """Refuse a store of another version than this nearpeak's.

    Raises:
        SchemaVersionError: it is older, or newer.
        StoreError: it holds no tables.
    """
    if version is None:
        raise StoreError(f"{name}: holds no tables; a store is made by 'nearpeak store import'")
    if version > HEAD:
        raise SchemaVersionError(
            f"{name}: schema {version} is newer than {HEAD}, which this nearpeak knows;"
            " nothing is touched: use a newer nearpeak"
        )
    if version < HEAD:
        raise SchemaVersionError(
            f"{name}: schema {version} is older than {HEAD};"
            f" 'nearpeak store upgrade --store {name}' saves a copy and upgrades it"
        )


def lock_schema(connection: Connection) -> None:
    """Wait until no other transaction makes or upgrades the tables; on SQLite this one is the only writer anyway."""
    if not is_sqlite(connection):
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))


def migrate(connection: Connection, wanted: str = "head") -> None:
    """Bring the tables to the version `wanted`, within the transaction that `connection` holds."""
    lock_schema(connection)
    script = _script()

    def steps(current: object, _: object) -> object:
        return script._upgrade_revs(wanted, current)  # type: ignore[arg-type]  # as alembic.command.upgrade does

    with EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()


@cache
def _script() -> ScriptDirectory:
    """Return the migrations, whose files are read once."""
    return ScriptDirectory(str(_FOLDER))
