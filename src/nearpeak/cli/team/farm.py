"""Command `nearpeak farm`: exclusive measurement on many devices, with the store as the job queue."""

import math
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.run.measure import BUDGET, CACHE, LIMIT, MEMORY, NO_CHECK, THREADS, timing_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.completion import runners
from nearpeak.cli.shared.farm_engine import (
    LISTEN,
    Engine,
    check_engine,
    ended,
    opened_store,
    own_devices,
    parameters_of,
    settings_of,
    told_to_end,
)
from nearpeak.cli.shared.farm_output import budget, results, say, status
from nearpeak.cli.shared.options import seconds_of
from nearpeak.cli.team.store import STORE
from nearpeak.errors import UNAVAILABLE_CODE, NearpeakError, SpecError
from nearpeak.units import parse_share

if TYPE_CHECKING:
    from nearpeak.cli.shared.farm_requests import Submission
    from nearpeak.farm.job_queue import Submitted
    from nearpeak.store import Store

DEVICES = typer.Option(
    [], "--device", help="Device of this host: cpu, gpus (all of them), or the UUID of one. Repeatable."
)
SLOTS = typer.Option(0, "--slots", min=0, max=4096, help="Cores of this host that take small jobs.")
TLS = typer.Option(None, "--tls", help="Folder of this host's certificate ('nearpeak farm tls').")
TTL = typer.Option("60 s", "--ttl", help="Life of a lease; it is renewed every quarter of it.")


def up(
    store: str | None = STORE,
    executor: str = typer.Option("local", "--executor", help="Executor that places jobs: local, dask, or slurm."),
    device: list[str] = DEVICES,
    slots: int = SLOTS,
    node: list[str] = typer.Option([], "--node", help="slurm: node whose device is leased. Repeatable."),
    listen: str = typer.Option(LISTEN, "--listen", help="dask: where the scheduler listens, HOST:PORT."),
    folder: Path | None = typer.Option(None, "--folder", help="slurm: folder that all nodes share."),
    slurm: list[str] = typer.Option([], "--slurm", help="slurm: parameter of sbatch, NAME=VALUE. Repeatable."),
    tls: Path | None = TLS,
    ttl: str = TTL,
    max_load: float = typer.Option(math.inf, "--max-load", min=0.01, help="Load per core above which a host waits."),
    max_noise: str = typer.Option("", "--max-noise", help="Scatter above which a device serves no gates, e.g. 2%."),
    until_idle: bool = typer.Option(False, "--until-idle", help="End when no job waits or runs."),
    json: bool = shared.JSON,
) -> None:
    """Run the farm: assign queued jobs to devices until stopped (Ctrl-C; running jobs finish first).

    With dask other hosts join by 'nearpeak farm join'. All state is in the store: the command may be ended, or
    killed, and started again at any time, also on another host.
    """
    from nearpeak.farm.dispatcher import Dispatcher
    from nearpeak.farm.farm_status import is_idle
    from nearpeak.store.store_check import place_of

    settings, place = settings_of(ttl, max_load, max_noise), place_of(store)
    local_devices, where = own_devices(device, slots), (node, folder, parameters_of(slurm))
    check_engine(executor, local_devices, (listen, tls), where)
    opened = opened_store(place)
    with told_to_end() as stop, ended(opened), Engine(executor, place, local_devices, (listen, tls), where) as engine:
        names = (
            [item.name for item in engine.executor.devices()]
            if executor == "slurm"
            else [item.name for item in local_devices]
        )
        record: dict[str, Any] = {"executor": executor, "store": opened.name, "devices": names}
        text = f"farm of {opened.name}: {executor}{', ' + engine.address if engine.address else ''}"
        if engine.address:
            record["address"] = engine.address
        say(record, f"{text}\nlends {', '.join(names) or 'nothing itself'}; Ctrl-C ends it", json=json)
        dispatcher = Dispatcher(opened, engine.executor, settings)
        dispatcher.run(lambda: stop.is_set() or (until_idle and is_idle(opened)))


def join(
    address: str = typer.Argument(metavar="ADDRESS", help="Scheduler, tls://HOST:PORT, as 'nearpeak farm up' says."),
    store: str | None = STORE,
    device: list[str] = DEVICES,
    slots: int = SLOTS,
    tls: Path | None = TLS,
    json: bool = shared.JSON,
) -> None:
    """Lend this host's devices and cores to a farm on Dask, until stopped.

    The host reaches the store by its own --store or NEARPEAK_STORE: the address may hold a password, and never
    travels. A scheduler that is gone is looked for until it is back.
    """
    from nearpeak.farm import dask_hosts as hosts
    from nearpeak.farm.device_registry import heartbeat, register
    from nearpeak.farm.dispatcher import HEARTBEAT_S
    from nearpeak.farm.executors.dask import join_as
    from nearpeak.store.store_check import place_of

    place, local_devices = place_of(store), own_devices(device, slots)
    if not local_devices:
        raise SpecError("farm join: lends nothing; add --device cpu, --device gpus or --slots N")
    security = hosts.security_of(tls, address)
    opened = opened_store(place)
    register(opened, local_devices)
    join_as(place)
    names = [item.name for item in local_devices]
    with told_to_end() as stop, ended(opened, is_counted=False), hosts.workers(address, security, local_devices):
        say({"address": address, "devices": names}, f"lends {', '.join(names)} to {address}; Ctrl-C ends it", json=json)
        while not stop.is_set():
            with suppress(NearpeakError):  # a store that is away for a while is no reason to leave
                heartbeat(opened, "dask", {"address": address})
            stop.wait(HEARTBEAT_S)


def submit(
    context: typer.Context,
    kind: str = typer.Argument(metavar="KIND", help="measure, command, predict, simulate, capture, or jobs (a file)."),
    words: list[str] = typer.Argument(None, metavar="…", help="A case, a table or suite; a program; models; a file."),
    store: str | None = STORE,
    runner: str = typer.Option("torch_cpu", "--runner", help="measure: runner of the cases.", autocompletion=runners),
    against: str = typer.Option("", "--against", help="Runner or program to compare with, in rounds A B B A."),
    rounds: int = typer.Option(5, "--rounds", min=1, max=1000, help="--against: rounds."),
    effect: str = typer.Option("", "--effect", help="--against: smallest change to be seen, e.g. 1%."),
    launches: int = typer.Option(1, "--launches", min=1, max=10000, help="Fresh processes that measure each case."),
    target: list[str] = shared.TARGET,
    budget: str = BUDGET,
    limit: str = LIMIT,
    cache: str = CACHE,
    threads: int = THREADS,
    memory: str = MEMORY,
    no_check: bool = NO_CHECK,
    folder: str = typer.Option("", "--folder", help="command: folder in which it runs, there; else an empty one."),
    device: str = typer.Option("", "--device", help="Device that it must run on, as 'farm status' names it."),
    model: str = typer.Option("", "--model", help="Model of the device that it must run on; any by default."),
    reason: str = typer.Option("", "--reason", help="gate, suspect, bisect, pr, nightly, manual, calibration, sweep."),
    owner: str = typer.Option("", "--owner", help="Owner of the jobs; the user of this process by default."),
    trigger: str = typer.Option("manual", "--trigger", help="Purpose of the budget: nightly, pr, manual, …."),
    repository: Path | None = typer.Option(None, "--repository", help="Git repository that is measured."),
    branch: str = typer.Option("main", "--branch", help="Branch whose history the results belong to."),
    key: str = typer.Option("", "--key", help="Name of a campaign; jobs that ran in another campaign run again."),
    batch: int = typer.Option(
        0, "--batch", min=0, max=100000, help="Small jobs that one lease serves; 0: by their time."
    ),
    json: bool = shared.JSON,
) -> None:
    """Put jobs into the queue; a job that is in it already, in any state, is not added again.

    Measurements and programs each run alone on a device, in a fresh process; predictions, simulations and captures
    run on slots of cores, many under one lease. Captures take words as batch=1,8 sequence=128 step=train beside their
    models, and are one job for each combination. Exit code 1 when a budget refuses some.
    """
    from nearpeak.cli.shared.farm_options import check_options
    from nearpeak.cli.shared.farm_requests import Submission, options_of
    from nearpeak.cli.team.store import revision_of
    from nearpeak.store.store_check import place_of

    # Every parameter of the context has a source.
    used = {parameter for parameter in context.params if context.get_parameter_source(parameter).name == "COMMANDLINE"}  # type: ignore[union-attr]
    check_options(kind, used)
    place, commit = place_of(store), revision_of(repository, None)
    order = Submission(
        kind=kind, words=tuple(words or ()), runner=runner, against=against, round_count=rounds, key=key,
        launch_count=launches, targets=tuple(target), branch=branch, batch_count=batch, folder=folder,
        timing=timing_of(budget, limit, cache, threads, memory, check=not no_check),
        limit_s=seconds_of(limit, "--limit"), memory_bytes=shared.bytes_of(memory) if "memory" in used else None,
        revision=asdict(commit) if commit else None, options=options_of(kind, (device, model), reason, owner, trigger),
    )  # fmt: skip
    _put(order, place, parse_share(effect, "--effect") if effect else None, json=json)


def _put(order: "Submission", place: str, effect_ratio: float | None, *, json: bool) -> None:
    """Put a submission into the queue, and print its outcome."""
    from nearpeak.cli.shared.farm_requests import requests_of
    from nearpeak.farm.comparison_rounds import check_effect
    from nearpeak.farm.job_queue import check
    from nearpeak.farm.job_queue import submit as put
    from nearpeak.farm.unplaceable_jobs import untaken

    wanted = requests_of(order)
    check(wanted)  # before a store is made
    opened = opened_store(place, create=effect_ratio is None)
    if effect_ratio is not None:
        check_effect(opened, order.options["device"], effect_ratio, order.round_count)
    submitted = put(opened, wanted)
    names = sorted({request.comparison for request in wanted if request.comparison})
    text = _submitted(opened, submitted) + "".join(f"\ncomparison {request}" for request in names)
    say(asdict(submitted) | {"comparisons": names}, text, json=json)
    for job, why in submitted.refused:
        sys.stderr.write(f"job {job[:12]}: refused: {why}\n")
    for what in untaken(opened, wanted):
        sys.stderr.write(f"the farm never had {what}: what asks for it waits until a host lends it\n")
    raise typer.Exit(1 if submitted.refused else 0)


def _submitted(opened: "Store", submitted: "Submitted") -> str:
    """Return the outcome of a submission as text; a single job is named."""
    from nearpeak.farm.farm_status import job
    from nearpeak.units import counted

    if len(submitted.uids) == 1:
        uid = submitted.uids[0]
        return f"job {uid[:12]}: {job(opened, uid)['state']}{'' if submitted.new_count else ' already'}"
    known = f", {submitted.known_count} there already" if submitted.known_count else ""
    return f"{counted(submitted.new_count, 'new job')}{known}; the first is {submitted.uids[0][:12]}"


def drain(
    store: str | None = STORE,
    device: str = typer.Option("", "--device", help="Only this device."),
    host: str = typer.Option("", "--host", help="Only devices of this host."),
    undo: bool = typer.Option(False, "--undo", help="Take them into service again, quarantined ones too."),
    note: str = typer.Option("", "--note", help="Reason, in one line."),
    wait: str = typer.Option("", "--wait", help="Longest wait until they are free, e.g. '600 s'."),
    json: bool = shared.JSON,
) -> None:
    """Let devices finish their running jobs and take no new ones: all devices, those of a host, or one.

    Exit code 3 when they are not free in time.
    """
    from nearpeak.farm.device_registry import devices, set_service
    from nearpeak.store.store_check import place_of
    from nearpeak.units import counted

    wait_s = seconds_of(wait, "--wait") if wait else 0.0
    opened = opened_store(place_of(store), create=False)
    names = set_service(opened, "open" if undo else "draining", device=device, host=host, note=note)
    until_s = time.monotonic() + wait_s
    while (
        busy := [row.device.name for row in devices(opened) if row.batch is not None and row.device.name in names]
    ) and time.monotonic() < until_s:
        time.sleep(0.2)
    what = "in service" if undo else "draining"
    text = f"{counted(len(names), 'device')} {what}" + (f"; {', '.join(busy)} still busy" if busy and not undo else "")
    say({"devices": list(names), "service": "open" if undo else "draining", "busy": busy}, text, json=json)
    raise typer.Exit(UNAVAILABLE_CODE if wait and busy and not undo else 0)


def cancel(
    jobs: list[str] = typer.Argument(metavar="JOB…", help="Identity of a job, or its first letters, eight at least."),
    store: str | None = STORE,
    json: bool = shared.JSON,
) -> None:
    """Cancel unfinished jobs, with the batch that they belong to; running ones are terminated."""
    from nearpeak.farm.job_queue import cancel as cancelled
    from nearpeak.store.store_check import place_of
    from nearpeak.units import counted

    count = cancelled(opened_store(place_of(store), create=False), jobs)
    say({"cancelled": count}, f"{counted(count, 'batch')} cancelled{'' if count else ': all are over'}", json=json)


def tls(
    folder: Path = typer.Argument(help="Folder of the authority, created if missing; it stays on one host."),
    host: list[str] = typer.Option(..., "--host", help="Name or address of a host. Repeatable."),
    days: int = typer.Option(365, "--days", min=1, max=3650, help="How long certificates are valid."),
    json: bool = shared.JSON,
) -> None:
    """Make the farm's own authority, and a certificate with its key for each host.

    Copy ca.pem, HOST.pem and HOST-key.pem to a folder on each host; ca-key.pem stays. Whoever holds a certificate of
    the authority can run code on the farm: it signs nothing else.
    """
    from nearpeak.farm.certificates import make

    made = [str(path) for path in make(folder, host, days)]
    say({"files": made}, "\n".join(made), json=json)


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = shared.group_of("Many devices, one queue: each measured on alone, each result accepted once.")
    for command in (up, join, submit, status, results, drain, cancel, tls, budget):
        group.command()(command)
    app.add_typer(group, name="farm")
