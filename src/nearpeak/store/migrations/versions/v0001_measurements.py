"""Schema version 1: commits, machines, cases, series, runs, measurements and samples."""

from alembic import op
from sqlalchemy import Column, Index, MetaData, Text, UniqueConstraint

from nearpeak.store.rows.schema_columns import blob, clustered, integer, key, make, one_of, place, real, table, text, to

revision, down_revision = "0001", None


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`."""
    table(metadata, "store_info", Column("name", Text, primary_key=True), text("value"))
    _declare_places(metadata)
    _declare_cases(metadata)
    _declare_runs(metadata)


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), declare)


def _declare_places(metadata: MetaData) -> None:
    table(metadata, "repo", key(), text("url"), UniqueConstraint("url"))
    table(
        metadata, "revision", key(), to("repo"), text("sha"), text("parent_sha"), text("author"), integer("authored_ns",
        optional=True), integer("committed_ns", optional=True), integer("fp_pos", optional=True), text("subject"),
        text("pull_request"), UniqueConstraint("repo_id", "sha"), Index("revision_position", "repo_id", "fp_pos"),
    )  # fmt: skip
    table(metadata, "host", key(), text("name"), UniqueConstraint("name"))
    table(metadata, "device_model", key(), text("name"), text("vendor"), text("architecture"), UniqueConstraint("name"))
    table(
        metadata, "device", key(), to("host"), to("device_model"), text("uuid"), text("mig_profile"),
        UniqueConstraint("device_model_id", "uuid", "mig_profile", "host_id"),
    )  # fmt: skip
    table(metadata, "stack", key(), text("fingerprint"), UniqueConstraint("fingerprint"))
    clustered(
        metadata, "stack_component", to("stack", primary=True), Column("name", Text, primary_key=True), text("version"),
        Index("stack_component_version", "name", "version"),
    )  # fmt: skip


def _declare_cases(metadata: MetaData) -> None:
    table(metadata, "workload", key(), text("name"), text("owner"), UniqueConstraint("name"))
    table(
        metadata, "test_case", key(), to("workload"), text("case_digest"), text("label"), text("parameters"),
        UniqueConstraint("case_digest"),
    )  # fmt: skip
    table(
        metadata, "metric", key(), text("name"), text("unit"), *one_of("direction", ("lower", "higher")),
        *one_of("scale", ("log", "linear")), text("kind"), UniqueConstraint("name"),
    )  # fmt: skip
    table(
        metadata, "testbed", key(), text("name"), text("policy"), text("fingerprint"), UniqueConstraint("fingerprint"),
    )  # fmt: skip
    table(
        metadata, "series", key(), text("fingerprint"), to("test_case"), to("metric"), to("device_model"),
        text("mig_profile"), to("testbed"), text("branch"), text("stack_track"), text("noise"), text("owner"),
        integer("last_run_id", optional=True), integer("previous_run_id", optional=True),
        UniqueConstraint("fingerprint"), Index("series_case", "test_case_id"), Index("series_owner", "owner"),
    )  # fmt: skip


def _declare_runs(metadata: MetaData) -> None:
    table(
        metadata, "run", key(), text("uid"), to("revision", optional=True), text("branch"), text("dirty_hash"),
        to("stack"), to("device"), integer("order_key"), text("run_trigger"), integer("started_ns"), integer("ended_ns",
        optional=True), text("settings"), text("facts"), text("source_name"), text("source_digest"), text("importer"),
        text("lost"), to("run", name="superseded_by", optional=True), UniqueConstraint("uid"), Index("run_revision",
        "revision_id"), Index("run_device", "device_id", "started_ns"),
    )  # fmt: skip
    whole = (to("run", primary=True), to("series", primary=True), place("launch"))
    clustered(
        metadata, "measurement", *whole, integer("sample_id", optional=True), integer("n"), *(real(name, optional=True)
        for name in SUMMARIES), real("clock_hz", optional=True), text("outcome"), text("note", optional=True),
        integer("flags"), Index("measurement_series", "series_id", "run_id"),
    )  # fmt: skip
    table(metadata, "sample_blob", key(), text("format"), integer("crc32"), blob("data"))
    whole = (to("run", primary=True), to("series", primary=True), place("launch"))
    table(
        metadata, "channel_blob", *whole, Column("channel", Text, primary_key=True), text("format"), integer("crc32"),
        blob("data"),
    )  # fmt: skip


SUMMARIES = ("median", "q1", "q3", "low", "high", "least")
"""Columns derived from the samples, kept so that histories read no blob and outlive them."""
