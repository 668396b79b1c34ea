"""Tables of the farm: devices with their lease holders, and queued, running or failed jobs."""

from collections.abc import Sequence

from nearpeak.farm.device_registry import DeviceState, devices
from nearpeak.farm.farm_status import overview
from nearpeak.farm.queue_views import Holding, JobRow, holdings, job_rows, outcome_of
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import clean, shortened, time_cell
from nearpeak.web.site import Site

MOST_JOBS = 50
ACTIVE, OVER = ("running", "leased", "queued"), ("failed", "rejected")
_KINDS = {"failed": "bad", "rejected": "warn", "running": "good", "leased": "good", "done": "good"}


def farm_tables(site: Site) -> tuple[Table, ...]:
    """Return devices with their leases, what waits or runs, what failed, and how many jobs are in each state."""
    store = site.store
    active = sorted(job_rows(store, states=ACTIVE, limit=MOST_JOBS), key=lambda one: ACTIVE.index(one.state))
    return (
        _devices(devices(store), holdings(store)),
        _counts(site),
        jobs_table(active, "queue", "Jobs that run or wait"),
        jobs_table(job_rows(store, states=OVER, limit=MOST_JOBS), "failed", "Jobs that failed or were refused"),
    )


def _devices(found: Sequence[DeviceState], held: dict[str, Holding]) -> Table:
    return Table(
        name="leases", caption="Devices of the farm, and who holds them",
        columns=columns("device|Device", "model|Model", "host|Host", "service|Service", "job|Held by", "since_ns|Since",
                        "#fencing_token|Token", "expires_ns|Lease ends", "#noise_ratio|Noise", "note|Note"),
        rows=tuple(_device(one, held.get(one.device.name)) for one in found),
        empty="no farm: 'nearpeak farm up --device gpus' lends this store the devices of a host",
    )  # fmt: skip


def _device(one: DeviceState, held: Holding | None) -> tuple[object, ...]:
    kind = {"open": "good", "draining": "warn"}.get(one.service, "bad")
    more = f" and {held.job_count - 1} more" if held and held.job_count > 1 else ""
    return (
        one.device.name, one.device.model, one.device.host,
        Cell(value="in service" if one.service == "open" else one.service, kind=kind),
        Cell(value=held.job if held else None, text=f"{held.kind} {held.job[:12]}{more}" if held else "free",
             kind="" if held else "muted", hint=clean(one.holder)),
        time_cell(held.since_ns if held else None), one.fencing_token, time_cell(held.expires_ns if held else None),
        Cell(value=one.noise_ratio, text="–" if one.noise_ratio is None else f"{one.noise_ratio:.2%}"), one.note,
    )  # fmt: skip


def _counts(site: Site) -> Table:
    found = overview(site.store)["jobs"]
    return Table(
        name="states", caption="Jobs of the farm by state", columns=columns("state|State", "#jobs|Jobs"),
        rows=tuple((state, count) for state, count in found.items() if count),
        empty="nothing was ever submitted: 'nearpeak farm submit' does",
    )  # fmt: skip


def jobs_table(rows: Sequence[JobRow], name: str, caption: str) -> Table:
    """Return jobs as a table."""
    return Table(
        name=name, caption=caption,
        columns=columns("job|Job", "kind|Kind", "subject|About", "state|State", "#priority|Priority", "owner|Who",
                        "trigger|Why", "device|Device", "#attempts|Attempts", "created_ns|Asked for",
                        "note|What came of it"),
        rows=tuple(
            (
                Cell(value=one.uid, text=one.uid[:12]), one.kind, Cell(value=one.subject, text=one.subject[:40]),
                Cell(value=one.state, kind=_KINDS.get(one.state, "")), one.priority, one.owner, one.trigger, one.device,
                one.attempt_count, time_cell(one.created_ns),
                Cell(value=outcome_of(one), text=shortened(outcome_of(one), 120)),
            )
            for one in rows
        ),
        empty="none",
    )  # fmt: skip
