"""Schema version 4: bridges between series whose key changed, and records attached to measurements."""

from alembic import op
from sqlalchemy import Column, Index, MetaData, Text, UniqueConstraint

from nearpeak.store.migrations.versions import v0001_measurements, v0002_findings, v0003_retention
from nearpeak.store.rows.schema_columns import blob, integer, key, make, place, real, table, text, to

revision, down_revision = "0004", "0003"


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`, which holds those of the versions before."""
    table(
        metadata, "bridge", key(), text("uid"), to("series", name="old_series_id"), to("series", name="new_series_id"),
        text("sha"), text("verdict"), real("effect"), real("low"), real("high"), integer("launches"),
        text("differences"), integer("created_ns"), UniqueConstraint("uid"), Index("bridge_new", "new_series_id"),
    )  # fmt: skip
    whole = (to("run", primary=True), to("series", primary=True), place("launch"))
    table(metadata, "record_blob", *whole, Column("kind", Text, primary_key=True), integer("crc32"), blob("data"))


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), v0001_measurements.declare, v0002_findings.declare, v0003_retention.declare, declare)
