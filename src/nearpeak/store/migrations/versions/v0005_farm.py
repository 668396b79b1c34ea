"""Schema version 5: farm jobs, batches, device leases with fencing tokens, attempts and results."""

from alembic import op
from sqlalchemy import Index, MetaData, UniqueConstraint

from nearpeak.store.migrations.versions import v0001_measurements, v0002_findings, v0003_retention
from nearpeak.store.rows.schema_columns import clustered, integer, key, make, one_of, real, table, text, to

revision, down_revision = "0005", "0004"
STATES = ("queued", "leased", "running", "done", "failed", "rejected", "cancelled")
"""What a job and its batch can be; the last four are final."""
POOLS = ("device", "slot")
"""What a batch is leased: a device for itself, or a slot of a host's cores."""
SERVICES = ("open", "draining", "quarantined")
"""Whether a device takes new batches: it does, it is to become free, it failed."""
OUTCOMES = ("running", "accepted", "rejected", "lost", "infra", "cancelled")
"""How an attempt ended: published, too late, its holder gone, its host or device unfit, or no longer wanted."""


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`, which holds those of the versions before."""
    _declare_jobs(metadata)
    _declare_devices(metadata)
    _declare_attempts(metadata)


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), v0001_measurements.declare, v0002_findings.declare, v0003_retention.declare, declare)


def _declare_jobs(metadata: MetaData) -> None:
    table(
        metadata, "job_batch", key(), text("uid"), text("comparison"), integer("round"), *one_of("pool", POOLS),
        text("device"), text("model"), integer("priority"), real("cost_s"), text("owner"), text("run_trigger"),
        *one_of("state", STATES), integer("attempt_count"), integer("infra_count"), integer("not_before_ns"),
        integer("created_ns"), integer("ended_ns", optional=True), text("held_by"), integer("fencing_token"),
        text("note"), UniqueConstraint("uid"), Index("job_batch_state", "state", "not_before_ns"),
        Index("job_batch_comparison", "comparison"), Index("job_batch_trigger", "run_trigger", "created_ns"),
    )  # fmt: skip
    table(
        metadata, "job", key(), text("uid"), to("job_batch"), integer("place"), text("kind"), text("subject"),
        text("payload"), *one_of("state", STATES), UniqueConstraint("uid"), Index("job_in_batch", "job_batch_id",
        "place"), Index("job_state", "state"), Index("job_subject", "subject"),
    )  # fmt: skip


def _declare_devices(metadata: MetaData) -> None:
    table(
        metadata, "device_lease", key(), text("name"), *one_of("pool", POOLS), text("host"), text("model"),
        text("parent"), *one_of("service", SERVICES), text("note"), real("noise", optional=True),
        integer("failure_count"), to("job_batch", optional=True), text("holder"), integer("fencing_token"),
        integer("expires_ns"), UniqueConstraint("name"), Index("device_lease_batch", "job_batch_id"),
    )  # fmt: skip
    table(
        metadata, "host_heartbeat", key(), text("name"), integer("seen_ns"), text("executor"), text("facts"),
        UniqueConstraint("name"),
    )  # fmt: skip
    table(metadata, "farm_budget", key(), text("run_trigger"), real("day_s"), UniqueConstraint("run_trigger"))


def _declare_attempts(metadata: MetaData) -> None:
    table(
        metadata, "job_attempt", key(), to("job_batch"), text("device"), integer("fencing_token"), text("holder"),
        integer("begun_ns"), integer("ended_ns", optional=True), *one_of("outcome", OUTCOMES), text("note"),
        text("preflight"), text("postflight"), text("evidence"), UniqueConstraint("device", "fencing_token"),
        Index("job_attempt_batch", "job_batch_id"),
    )  # fmt: skip
    clustered(
        metadata, "job_result", to("job", primary=True), to("job_attempt"), real("time_s"), text("result"),
        integer("crc32"), integer("accepted_ns"),
    )  # fmt: skip
