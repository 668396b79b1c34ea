"""Schema version 3: a log of archived runs, and a table of files that belong to a run or one of its series."""

from alembic import op
from sqlalchemy import Index, MetaData

from nearpeak.store.migrations.versions import v0001_measurements, v0002_findings
from nearpeak.store.rows.schema_columns import integer, key, make, table, text, to

revision, down_revision = "0003", "0002"


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`, which holds those of the versions before."""
    table(
        metadata, "retention_log", key(), integer("at_ns"), text("archive"), text("manifest_hash"),
        integer("run_count"), integer("blob_count"), integer("byte_count"),
    )  # fmt: skip
    table(
        metadata, "artifact", key(), to("run"), to("series", optional=True), text("kind"), text("uri"), text("sha256"),
        integer("byte_count"), Index("artifact_run", "run_id"), Index("artifact_sha256", "sha256"),
    )  # fmt: skip


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), v0001_measurements.declare, v0002_findings.declare, declare)
