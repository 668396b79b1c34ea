"""What a change of the key of a series did to its values, measured on both sides of it."""

from alembic import op
from sqlalchemy import Index, MetaData, UniqueConstraint

from nearpeak.store._columns import integer, key, real, table, text, to
from nearpeak.store.migrations.versions import v0001_measurements, v0002_findings, v0003_retention

revision, down_revision = "0004", "0003"


def declare(metadata: MetaData) -> None:
    """Add the table to `metadata`, which holds those of the versions before."""
    table(
        metadata, "bridge", key(), text("uid"), to("series", name="old_series_id"), to("series", name="new_series_id"),
        text("sha"), text("verdict"), real("effect"), real("low"), real("high"), integer("launches"),
        text("differences"), integer("created_ns"), UniqueConstraint("uid"), Index("bridge_new", "new_series_id"),
    )  # fmt: skip


def upgrade() -> None:
    """Make the table."""
    metadata = MetaData()
    for before in (v0001_measurements, v0002_findings, v0003_retention):
        before.declare(metadata)
    declare(metadata)
    metadata.create_all(op.get_bind(), tables=[metadata.tables["bridge"]], checkfirst=False)
