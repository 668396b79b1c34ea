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
    active = sorted(job_rows(store, states=ACTIVE, limit=MOST_JOBS), key=lambda job: ACTIVE.index(job.state))
    return (
        _devices(devices(store), holdings(store)),
        _counts(site),
        jobs_table(active, "queue", "Jobs that run or wait"),
        jobs_table(job_rows(store, states=OVER, limit=MOST_JOBS), "failed", "Jobs that failed or were refused"),
    )


def _devices(states: Sequence[DeviceState], held: dict[str, Holding]) -> Table:
    return Table(
        name="leases", caption="Devices of the farm, with lease holders",
        columns=columns("device|Device", "model|Model", "host|Host", "service|Service", "job|Held by", "since_ns|Since",
                        "#fencing_token|Token", "expires_ns|Lease ends", "#noise_ratio|Noise", "note|Note"),
        rows=tuple(_device(state, held.get(state.device.name)) for state in states),
        empty="no farm: 'nearpeak farm up --device gpus' lends this store the devices of a host",
    )  # fmt: skip


def _device(state: DeviceState, held: Holding | None) -> tuple[object, ...]:
    kind = {"open": "good", "draining": "warn"}.get(state.service, "bad")
    more = f" and {held.job_count - 1} more" if held and held.job_count > 1 else ""
    return (
        state.device.name, state.device.model, state.device.host,
        Cell(value="in service" if state.service == "open" else state.service, kind=kind),
        Cell(value=held.job if held else None, text=f"{held.kind} {held.job[:12]}{more}" if held else "free",
             kind="" if held else "muted", hint=clean(state.holder)),
        time_cell(held.since_ns if held else None), state.fencing_token, time_cell(held.expires_ns if held else None),
        Cell(value=state.noise_ratio, text="–" if state.noise_ratio is None else f"{state.noise_ratio:.2%}"),
        state.note,
    )  # fmt: skip


def _counts(site: Site) -> Table:
    counts = overview(site.store)["jobs"]
    return Table(
        name="states", caption="Jobs of the farm by state", columns=columns("state|State", "#jobs|Jobs"),
        rows=tuple((state, count) for state, count in counts.items() if count),
        empty="nothing was ever submitted: 'nearpeak farm submit' does",
    )  # fmt: skip


def jobs_table(rows: Sequence[JobRow], name: str, caption: str) -> Table:
    """Return jobs as a table."""
    return Table(
        name=name, caption=caption,
        columns=columns("job|Job", "kind|Kind", "subject|About", "state|State", "#priority|Priority", "owner|Who",
                        "trigger|Why", "device|Device", "#attempts|Attempts", "created_ns|Requested",
                        "note|What came of it"),
        rows=tuple(
            (
                Cell(value=job.uid, text=job.uid[:12]), job.kind, Cell(value=job.subject, text=job.subject[:40]),
                Cell(value=job.state, kind=_KINDS.get(job.state, "")), job.priority, job.owner, job.trigger, job.device,
                job.attempt_count, time_cell(job.created_ns),
                Cell(value=outcome_of(job), text=shortened(outcome_of(job), 120)),
            )
            for job in rows
        ),
        empty="none",
    )  # fmt: skip
