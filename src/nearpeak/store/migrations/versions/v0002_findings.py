"""Schema version 2: change points, comparisons, alerts with events, suppressions, expectations, baselines and gates."""

from alembic import op
from sqlalchemy import Index, MetaData, UniqueConstraint

from nearpeak.core.history.alert import STATUSES
from nearpeak.store.migrations.versions import v0001_measurements as before
from nearpeak.store.rows.schema_columns import clustered, integer, key, make, one_of, place, real, table, text, to

revision, down_revision = "0002", "0001"


_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER alert_event_no_{what} BEFORE {what} ON alert_event"
        " BEGIN SELECT RAISE(ABORT, 'events of alerts are never changed'); END"
        for what in ("update", "delete")
    ],
    "postgresql": [
        "CREATE FUNCTION alert_event_kept() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'events of alerts are never changed'; END $$",
        "CREATE TRIGGER alert_event_kept BEFORE UPDATE OR DELETE ON alert_event"
        " FOR EACH ROW EXECUTE FUNCTION alert_event_kept()",
    ],
}
"""What sees to it, on each engine, that the log of an alert only grows."""


def declare(metadata: MetaData) -> None:
    """Add the tables to `metadata`, which holds those of the versions before."""
    _declare_changes(metadata)
    _declare_alerts(metadata)
    _declare_policies(metadata)


def upgrade() -> None:
    """Make the tables."""
    make(op.get_bind(), before.declare, declare)
    for statement in _APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)


def _declare_changes(metadata: MetaData) -> None:
    table(
        metadata, "detector", key(), text("name"), text("version"), text("parameters"), text("hash"),
        UniqueConstraint("hash"),
    )  # fmt: skip
    table(
        metadata, "change_point", key(), text("uid"), to("series"), to("detector"), integer("order_key"),
        text("rev_lo"), text("rev_hi"), real("effect"), real("low", optional=True), real("high", optional=True),
        real("score", optional=True), *one_of("tier", ("suspect", "confirmed")), integer("n_before"),
        integer("n_after"), integer("first_seen_ns"), integer("last_seen_ns"), integer("retracted_ns", optional=True),
        text("evidence"), UniqueConstraint("uid"), UniqueConstraint("series_id", "detector_id", "order_key"),
        Index("change_point_revision", "rev_hi"), Index("change_point_tier", "tier", "first_seen_ns"),
    )  # fmt: skip
    table(
        metadata, "comparison", key(), text("uid"), to("series", optional=True), text("baseline"), text("candidate"),
        real("theta", optional=True), real("theta_clock", optional=True), real("low", optional=True), real("high",
        optional=True), text("verdict"), integer("look"), integer("launches"), text("inputs"), integer("created_ns"),
        UniqueConstraint("uid"), Index("comparison_series", "series_id"), Index("comparison_verdict", "verdict",
        "created_ns"),
    )  # fmt: skip


def _declare_alerts(metadata: MetaData) -> None:
    table(
        metadata, "alert", key(), text("uid"), text("title"), text("rev_lo"), text("rev_hi"), text("stack_from"),
        text("stack_to"), *one_of("status", STATUSES), text("assignee"), integer("priority"), integer("due_ns",
        optional=True), integer("snoozed_until_ns", optional=True), text("tracker_url"), integer("created_ns"),
        integer("first_triaged_ns", optional=True), UniqueConstraint("uid"), Index("alert_status", "status", "due_ns"),
    )  # fmt: skip
    clustered(
        metadata, "alert_member", to("alert", primary=True), to("change_point", primary=True), *one_of("role",
        ("primary", "downstream", "related")),
    )  # fmt: skip
    table(
        metadata, "alert_event", key(), to("alert"), integer("at_ns"), text("actor"), text("from_status"),
        text("to_status"), text("note"), Index("alert_event_alert", "alert_id", "at_ns"),
    )  # fmt: skip
    table(
        metadata, "attribution", key(), to("alert"), text("axis"), text("what"), text("before"), text("after"),
        real("score", optional=True), text("method"), text("evidence"), integer("created_ns"),
        Index("attribution_alert", "alert_id"),
    )  # fmt: skip
    table(
        metadata, "bisect", key(), text("uid"), to("alert", optional=True), text("axis"), text("good"), text("bad"),
        text("state"), text("result"), integer("created_ns"), UniqueConstraint("uid"),
    )  # fmt: skip
    clustered(
        metadata, "bisect_step", to("bisect", primary=True), place("step"), text("candidate"), text("verdict"),
        text("evidence"),
    )  # fmt: skip


def _declare_policies(metadata: MetaData) -> None:
    table(
        metadata, "suppression", key(), text("uid"), text("selector"), text("rev_lo"), text("rev_hi"),
        integer("until_ns"), text("reason"), text("author"), integer("created_ns"), UniqueConstraint("uid"),
        Index("suppression_until", "until_ns"),
    )  # fmt: skip
    table(
        metadata, "expectation", key(), text("uid"), text("sha"), text("selector"), real("low"), real("high"),
        text("author"), integer("created_ns"), UniqueConstraint("uid"), Index("expectation_sha", "sha"),
    )  # fmt: skip
    table(
        metadata, "baseline", key(), text("name"), *one_of("kind", ("tag", "commit", "rolling", "theory")),
        text("selector"), integer("created_ns"), UniqueConstraint("name"),
    )  # fmt: skip
    table(
        metadata, "gate", key(), text("uid"), text("run_group"), text("policy_hash"), *one_of("verdict", ("pass",
        "fail", "inconclusive")), integer("exit_code"), text("counts"), text("result"), integer("created_ns"),
        UniqueConstraint("uid"), Index("gate_run_group", "run_group"),
    )  # fmt: skip
    table(
        metadata, "notification", key(), text("target"), text("external_id"), text("body_hash"), integer("sent_ns"),
        UniqueConstraint("target", "external_id"),
    )  # fmt: skip
