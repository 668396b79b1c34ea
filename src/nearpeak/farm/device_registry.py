"""Registry of the farm's devices: inventory of hosts, service state, last heartbeat."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update

from nearpeak.base.canonical_json import canonical_json
from nearpeak.errors import MeasureError, NotFoundError, SpecError
from nearpeak.farm.job_queue import LEASE, NS
from nearpeak.farm.jobs import SERVICES, Device
from nearpeak.store import Store
from nearpeak.store.sql_dialect import insert_new, now_ns, put_row, reading, writing
from nearpeak.store.table_schema import TABLES

HEARTBEAT = TABLES["host_heartbeat"]
SILENT_S = 60.0
"""Time without a sign of life of a host after which it is believed to lend nothing, and of all, to be no farm."""
_MISTAKEN = re.compile(r"(?!gpus$|cpu$)(?i:gpus?|cuda|cpus?|all|any)[:_-]?\d{0,3}")
"""What people write for the processor or a GPU and would get a device of that name, which is neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """A device, and what it does."""

    device: Device
    """The device."""
    service: str
    """`open`, `draining` or `quarantined`."""
    note: str
    """Why it is not open."""
    noise_ratio: float | None
    """Standard deviation of the logarithms of candidate over baseline in the rounds of its last A/A comparison, which
    is about the relative one; none where there was none."""
    batch: int | None
    """Batch that holds it; none where it is free."""
    holder: str
    """Who holds it."""
    fencing_token: int
    """Newest token."""
    left_s: float
    """Until the lease expires; 0 where it is free."""


def slots_of(count: int, host: str = "") -> tuple[Device, ...]:
    """Return slots of this host's cores.

    >>> [one.name for one in slots_of(2, "a")]
    ['a/0', 'a/1']
    """
    name = host or platform.node()
    return tuple(Device(name=f"{name}/{number}", pool="slot", host=name) for number in range(count))


def cpu_device(host: str = "") -> Device:
    """Return this host's processor as a device to measure on, alone."""
    from nearpeak.base.host_system import cpu_name

    name = host or platform.node()
    return Device(name=f"cpu@{name}", host=name, model=cpu_name())


def placed(device: Device) -> Device:
    """Return the device of this host that a lease means: a node's is the one that Slurm gave this process.

    >>> placed(Device(name="GPU-1")).name
    'GPU-1'
    """
    if not device.name.startswith("slurm@"):
        return device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    known = gpus() if visible else ()
    chosen = [entry for number, entry in enumerate(known) if visible.split(",")[0] in (str(number), entry.name)]
    return chosen[0] if chosen else cpu_device()


def named_devices(names: Sequence[str]) -> tuple[Device, ...]:
    """Return the devices that `--device` names on this host.

    `cpu`, `gpus` (all that the driver lists), UUIDs of GPUs and slices, or names of the user's own, which are leased
    and locked like any other.

    Raises:
        SpecError: a device is named twice, or a name is none that it would be taken for.
        MeasureError: GPUs are named that this host does not have; says why.
    """
    chosen = [device for name in names for device in _named(name)]
    if len({item.name for item in chosen}) < len(chosen):
        raise SpecError("--device: the same device is named twice")
    return tuple(chosen)


def _named(name: str) -> tuple[Device, ...]:
    if name == "cpu":
        return (cpu_device(),)
    if _MISTAKEN.fullmatch(name):
        raise SpecError(
            f"--device {name!r}: is no device's name; cpu is this host's processor, gpus are all its GPUs, one GPU is "
            "named by its UUID ('nvidia-smi -L' lists them)"
        )
    if name != "gpus" and not name.startswith(("GPU-", "MIG-")):
        return (Device(name=name, host=platform.node()),)
    known = gpus()
    if not known:
        from nearpeak.farm.device_health import why_no_gpu

        raise MeasureError(
            f"--device {name}: this host has no GPU that could be leased ({why_no_gpu()}); --device cpu leases its "
            "processor, --slots N lends its cores"
        )
    chosen = known if name == "gpus" else tuple(device for device in known if device.name == name)
    if not chosen:
        raise MeasureError(f"--device {name}: is not on this host; it has {', '.join(device.name for device in known)}")
    return chosen


def gpus() -> tuple[Device, ...]:
    """Return the GPUs and slices that this host's driver lists; none where there is no driver."""
    from nearpeak.farm.device_health import gpu_list

    host = platform.node()
    return tuple(Device(name=uuid, host=host, model=model, parent=parent) for uuid, model, parent in gpu_list())


def register(store: Store, devices: Sequence[Device]) -> None:
    """Make devices known; tokens of known ones stay as they are, and so does their service."""
    rows = [
        {"name": device.name, "pool": device.pool, "host": device.host, "model": device.model, "parent": device.parent,
         "service": "open", "note": "", "noise": None, "failure_count": 0, "job_batch_id": None, "holder": "",
         "fencing_token": 0, "expires_ns": 0}
        for device in devices
    ]  # fmt: skip
    with writing(store.engine, store.name) as connection:
        insert_new(connection, LEASE, rows, ["name"])
        for device in devices:
            pool = connection.execute(select(LEASE.c.pool).where(LEASE.c.name == device.name)).scalar_one()
            if pool != device.pool:
                raise SpecError(
                    f"device {device.name}: is known as a {pool}, not as a {device.pool}; give another name"
                )
            changed = update(LEASE).where(LEASE.c.name == device.name)
            connection.execute(changed.values(host=device.host, model=device.model, parent=device.parent))


def devices(store: Store) -> tuple[DeviceState, ...]:
    """Return all devices by name."""
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        rows = connection.execute(select(LEASE).order_by(LEASE.c.name)).all()
    return tuple(_state(row, at_ns) for row in rows)


def _state(row: Any, at_ns: int) -> DeviceState:
    left_s = max(0.0, (row.expires_ns - at_ns) / NS) if row.job_batch_id is not None else 0.0
    return DeviceState(
        device=Device(name=row.name, pool=row.pool, host=row.host, model=row.model, parent=row.parent),
        service=row.service, note=row.note, noise_ratio=row.noise, batch=row.job_batch_id, holder=row.holder,
        fencing_token=row.fencing_token, left_s=left_s,
    )  # fmt: skip


def set_service(store: Store, service: str, *, device: str = "", host: str = "", note: str = "") -> tuple[str, ...]:
    """Take devices out of service or back into it, and return which: one, those of a host, or all.

    What runs on them goes on to its end.

    Raises:
        NotFoundError: there is no such device or host.
    """
    if service not in SERVICES:
        raise SpecError(f"service {service!r}: is not known; there are {', '.join(SERVICES)}")
    query = select(LEASE.c.name).order_by(LEASE.c.name)
    query = query.where(LEASE.c.name == device) if device else query
    query = query.where(LEASE.c.host == host) if host else query
    with writing(store.engine, store.name) as connection:
        names = tuple(connection.execute(query).scalars())
        if not names and (device or host):
            raise NotFoundError(f"{device or host}: is no device or host of the farm; 'nearpeak farm status' lists all")
        values = {"service": service, "note": note} | ({"failure_count": 0} if service == "open" else {})
        connection.execute(update(LEASE).where(LEASE.c.name.in_(names)).values(values))
    return names


def set_noise(store: Store, device: str, noise_ratio: float) -> None:
    """Keep how much the rounds of an A/A comparison scatter on a device (`DeviceState.noise_ratio`)."""
    with writing(store.engine, store.name) as connection:
        changed = update(LEASE).where(LEASE.c.name == device).values(noise=noise_ratio)
        if not connection.execute(changed).rowcount:
            raise NotFoundError(f"{device}: is no device of the farm; 'nearpeak farm status' lists all")


def heartbeat(store: Store, executor: str, facts: Mapping[str, Any]) -> None:
    """Say that this host lives, by the clock of the database."""
    name, text = platform.node(), canonical_json({**facts, "process": os.getpid()})
    with writing(store.engine, store.name) as connection:
        row = {"name": name, "seen_ns": now_ns(connection), "executor": executor, "facts": text}
        put_row(connection, HEARTBEAT, row, ["name"])


def leave(store: Store) -> None:
    """Say that this host lends nothing any more; a process of it that still does says otherwise at its next sign."""
    with writing(store.engine, store.name) as connection:
        connection.execute(delete(HEARTBEAT).where(HEARTBEAT.c.name == platform.node()))


def hosts(store: Store) -> tuple[tuple[str, str, float], ...]:
    """Return each host with its executor and how many seconds ago it was heard of."""
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        rows = connection.execute(select(HEARTBEAT).order_by(HEARTBEAT.c.name)).all()
    return tuple((row.name, row.executor, max(0.0, (at_ns - row.seen_ns) / NS)) for row in rows)
