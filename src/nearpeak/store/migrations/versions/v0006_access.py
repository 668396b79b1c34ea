"""Schema version 6: hashed access tokens for web writes, and an append-only audit log."""

from alembic import op
from sqlalchemy import Index, MetaData, UniqueConstraint

from nearpeak.store.migrations.versions import v0001_measurements, v0002_findings, v0003_retention
from nearpeak.store.rows.schema_columns import integer, key, make, one_of, table, text

revision, down_revision = "0006", "0005"
SCOPES = ("read", "submit", "admin")
"""Scopes of a token; each includes the ones before it."""

_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{what} BEFORE {what} ON audit"
        " BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END"
        for what in ("update", "delete")
    ],
    "postgresql": [
        "CREATE FUNCTION audit_kept() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'the audit log is never changed'; END $$",
        "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_kept()",
    ],
}
"""What sees to it, on each engine, that the log only grows."""


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`, which holds those of the versions before."""
    table(
        metadata, "api_token", key(), text("name"), text("hash"), *one_of("scope", SCOPES), integer("created_ns"),
        integer("expires_ns"), integer("revoked_ns", optional=True), UniqueConstraint("hash"),
    )  # fmt: skip
    table(
        metadata, "audit", key(), integer("at_ns"), text("actor"), text("action"), text("object"), text("note"),
        Index("audit_at", "at_ns"),
    )  # fmt: skip


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), v0001_measurements.declare, v0002_findings.declare, v0003_retention.declare, declare)
    for statement in _APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)
