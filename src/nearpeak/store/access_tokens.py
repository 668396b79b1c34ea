"""Hashed access tokens for writing through the web interface, and the audit log of those writes."""

import hashlib
import secrets
import time
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, insert, select, update

from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store.migrations.versions.v0006_access import SCOPES
from nearpeak.store.sql_dialect import claim, reading, writing
from nearpeak.store.table_schema import TABLES
from nearpeak.units import time_text

_PREFIX = "np_"
_DAY_NS = 86_400 * 10**9
MOST_DAYS = 3650
_OURS = ("run token", "command line")
"""Names that stand in the audit log for the token of `nearpeak serve --write`, and for the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as the store knows it: never its text."""

    id: int
    """Identity within the store."""
    name: str
    """Whose, or what for."""
    scope: str
    """`read`, `submit` or `admin`."""
    created_ns: int
    """When it was made."""
    expires_ns: int
    """When it ends."""
    revoked_ns: int | None
    """When it was taken back; none while it was not."""

    def holds(self, at_ns: int) -> bool:
        """Say whether it is good at a time."""
        return self.revoked_ns is None and self.expires_ns > at_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that was done through the web."""

    at_ns: int
    """When."""
    actor: str
    """Name of the token that did it."""
    action: str
    """What."""
    object: str
    """To what."""
    note: str
    """With which words."""


class Access:
    """Tokens and audit log of a store."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def add_token(self, name: str, scope: str, *, days: float) -> str:
        """Make a token and return its text, which is shown once and stored nowhere.

        Raises:
            SpecError: no name, one that a token which holds has already, no such scope, or a life that is not between
                0 and ten years.
        """
        if not name.strip() or not name.isprintable() or len(name) > 100:
            raise SpecError(f"token {name!r}: needs a name of one line, at most 100 characters")
        if name in _OURS:
            raise SpecError(f"token {name!r}: is what nearpeak calls itself in the audit log; choose another name")
        if scope not in SCOPES:
            raise SpecError(f"token {name}: scope {scope!r} is not known; there are {', '.join(SCOPES)}")
        if not 0 < days <= MOST_DAYS:
            raise SpecError(f"token {name}: {days:g} days is not between 0 and {MOST_DAYS}")
        text, now_ns = _PREFIX + secrets.token_urlsafe(32), time.time_ns()
        row = {
            "name": name, "hash": hash_of(text), "scope": scope, "created_ns": now_ns,
            "expires_ns": now_ns + int(days * _DAY_NS), "revoked_ns": None,
        }  # fmt: skip
        with writing(self._engine, self._name) as connection:
            claim(connection, f"token {name}")
            _check_alone(connection, name, now_ns)
            connection.execute(insert(TABLES["api_token"]).values(row))
            add_entry(connection, "command line", "token add", name, scope)
        return text

    def token(self, text: str) -> Token | None:
        """Return the token of that text; none where there is none, it has ended, or it was taken back."""
        if not text.startswith(_PREFIX) or len(text) > 200:
            return None
        table = TABLES["api_token"]
        with reading(self._engine, self._name) as connection:
            row = connection.execute(select(table).where(table.c.hash == hash_of(text))).mappings().one_or_none()
        token = None if row is None else _token(row)
        return token if token is not None and token.holds(time.time_ns()) else None

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, newest last."""
        table = TABLES["api_token"]
        with reading(self._engine, self._name) as connection:
            return tuple(_token(row) for row in connection.execute(select(table).order_by(table.c.id)).mappings())

    def revoke(self, token: int) -> None:
        """Take a token back at once.

        Raises:
            NotFoundError: there is none of that number that still holds.
        """
        table = TABLES["api_token"]
        revocation = update(table).where(table.c.id == token, table.c.revoked_ns.is_(None))
        with writing(self._engine, self._name) as connection:
            if not connection.execute(revocation.values(revoked_ns=time.time_ns())).rowcount:
                raise NotFoundError(f"token {token}: is not in the store, or was taken back already")
            add_entry(connection, "command line", "token revoke", str(token), "")

    def log(self, actor: str, action: str, what: str, note: str = "") -> None:
        """Add a line to the audit log."""
        with writing(self._engine, self._name) as connection:
            add_entry(connection, actor, action, what, note)

    def audit(self, limit: int = 200) -> tuple[AuditEntry, ...]:
        """Return the newest entries, newest first."""
        c = TABLES["audit"].c
        query = select(c.at_ns, c.actor, c.action, c.object, c.note).order_by(c.id.desc()).limit(limit)
        with reading(self._engine, self._name) as connection:
            return tuple(AuditEntry(**row) for row in connection.execute(query).mappings())


def allows(held: str, scope: str) -> bool:
    """Say whether who holds a scope, or none, may do what another one names.

    >>> allows("submit", "read"), allows("submit", "submit"), allows("submit", "admin"), allows("", "read")
    (True, True, False, False)
    """
    return held in SCOPES and SCOPES.index(held) >= SCOPES.index(scope)


def hash_of(text: str) -> str:
    """Return what is stored of a token: 256 random bits need no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def add_entry(connection: Connection, actor: str, action: str, what: str, note: str) -> None:
    """Add a line to the audit log within a transaction."""
    row = {"at_ns": time.time_ns(), "actor": actor, "action": action, "object": what, "note": note}
    connection.execute(insert(TABLES["audit"]).values(row))


def _check_alone(connection: Connection, name: str, now_ns: int) -> None:
    """Refuse a name that a token has which holds: the audit log tells them apart by their names."""
    table = TABLES["api_token"]
    mine = select(table.c.id, table.c.expires_ns).where(table.c.name == name, table.c.revoked_ns.is_(None))
    duplicate = connection.execute(mine.where(table.c.expires_ns > now_ns).limit(1)).first()
    if duplicate is not None:
        raise SpecError(
            f"token {name}: there is one of that name until {time_text(duplicate.expires_ns)[:10]}; choose another "
            f"name, or 'nearpeak token revoke {duplicate.id}' first"
        )


def _token(row: object) -> Token:
    names = ("id", "name", "scope", "created_ns", "expires_ns", "revoked_ns")
    return Token(**{name: row[name] for name in names})  # type: ignore[index]
