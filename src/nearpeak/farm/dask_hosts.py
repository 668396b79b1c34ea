"""Dask processes of the farm: a stateless scheduler, and workers that supervise the devices of their host."""

import asyncio
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from nearpeak.errors import MeasureError, MissingExtraError, SpecError
from nearpeak.farm.jobs import Device

CONFIG = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60 s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.tls.min-version": 1.2,
    "distributed.admin.tick.limit": "60 s",
    "distributed.comm.timeouts.connect": "10 s",
}
"""Settings of Dask: a task is not tried again behind the queue's back, no page is served, nothing samples a host that
measures."""
RETRY_S = 1.0
"""Wait before a worker looks for its scheduler again."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DEVICE = "="


def distributed() -> Any:
    """Return Dask.distributed, with the farm's settings.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import dask
        import distributed as found
    except ImportError:
        raise MissingExtraError("farm: Dask is not installed; pip install 'nearpeak[farm]'") from None
    dask.config.set(CONFIG)
    for name in (
        "distributed",
        "distributed.scheduler",
        "distributed.worker",
        "distributed.core",
        "distributed.client",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return found


def security_of(folder: Path | None, address: str) -> Any:
    """Return what Dask encrypts with, and knows its own by: the host's certificate, on loopback by default the user's.

    Raises:
        SpecError: the address can be reached from elsewhere and there are no certificates, or files are missing or can
            be changed by others.
    """
    if folder is None and host_of(address) not in LOOPBACK:
        raise SpecError(
            f"{address}: can be reached from other hosts, and whoever reaches it can run code; "
            "make certificates by 'nearpeak farm tls' and name their folder by --tls"
        )
    from nearpeak.farm.certificates import files_in, own_folder

    ca, certificate, key = map(str, files_in(folder or own_folder()))
    pairs = {f"tls_{role}_{what}": path for role in ("scheduler", "worker", "client")
             for what, path in (("cert", certificate), ("key", key))}  # fmt: skip
    return distributed().Security(tls_ca_file=ca, require_encryption=True, **pairs)


def host_of(address: str) -> str:
    """Return the host of `tls://HOST:PORT` or `HOST:PORT`.

    >>> host_of("tls://10.0.0.1:8786"), host_of("127.0.0.1:0")
    ('10.0.0.1', '127.0.0.1')
    """
    return tls_address(address).removeprefix("tls://").rpartition(":")[0].strip("[]")


def tls_address(address: str) -> str:
    """Return an address with its protocol, which is always TLS: Dask runs what it receives, also from this host.

    >>> tls_address("127.0.0.1:8786")
    'tls://127.0.0.1:8786'
    """
    protocol, _, place = address.rpartition("://")
    host, colon, port = place.rpartition(":")
    if protocol == "tcp":
        raise SpecError(f"{address}: is without encryption, and whoever reaches it can run code; use tls://{place}")
    if not colon or not port.isdecimal() or not host or protocol not in ("", "tls"):
        raise SpecError(f"{address!r}: is no HOST:PORT; e.g. tls://10.0.0.1:8786")
    if int(port) > 65535:
        raise SpecError(f"{address!r}: port {port} is above 65535")
    return f"tls://{place}"


class Background:
    """A coroutine that runs in a thread of its own until it is closed."""

    def __init__(self, make: Callable[[asyncio.Event, Callable[[str], None]], Coroutine[Any, Any, None]]) -> None:
        """Start it, and wait until it says where it is; what it raises is raised here."""
        self._ready, self._stop, self.address = threading.Event(), asyncio.Event(), ""
        self._error: BaseException | None = None
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise MeasureError(f"farm: {_line(self._error)}") from self._error

    def __enter__(self) -> "Background":
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End it and wait for that."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=30.0)

    def _say(self, address: str) -> None:
        self.address = address
        self._ready.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._make(self._stop, self._say))
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """Yield a folder of this process alone: Dask imports from its own, whose name is known, among everybody's files.

    Source: distributed/core.py, Server.__init__, which puts the folder first into the module path.
    """
    from dask import config

    with tempfile.TemporaryDirectory(prefix="nearpeak-dask-") as folder, config.set({"temporary-directory": folder}):
        try:
            yield folder
        finally:
            sys.path[:] = [path for path in sys.path if not path.startswith(folder)]


def scheduler(address: str, security: Any) -> Background:
    """Return a running scheduler; it keeps no state that anybody needs."""
    dask, host = distributed(), host_of(address)
    port = int(address.rpartition(":")[2])

    async def run(stop: asyncio.Event, say: Callable[[str], None]) -> None:
        with _scratch_folder():
            made = dask.Scheduler(
                host=host, port=port, protocol="tls://", security=security, dashboard=False,
                dashboard_address="127.0.0.1:0",
            )  # fmt: skip
            async with made:
                made.http_server.stop()
                say(str(made.address))
                await stop.wait()

    return Background(run)


def workers(address: str, security: Any, devices: Sequence[Device]) -> Background:
    """Return running workers for the devices of this host: one for each, and one for all slots.

    A worker whose scheduler is gone ends, and another one looks for a scheduler until there is one again.
    """
    dask = distributed()
    slots = [device for device in devices if device.pool == "slot"]
    groups = [[device] for device in devices if device.pool == "device"] + ([slots] if slots else [])

    async def run(stop: asyncio.Event, say: Callable[[str], None]) -> None:
        with _scratch_folder() as folder:
            started = [_supervised(dask, tls_address(address), security, group, stop, folder) for group in groups]
            tasks = [asyncio.create_task(supervised) for supervised in started]
            say(address)
            await stop.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return Background(run)


async def _supervised(
    dask: Any, address: str, security: Any, group: Sequence[Device], stop: asyncio.Event, folder: str
) -> None:
    """Run one worker after the other until it is told to stop."""
    pool, address_here = group[0].pool, "127.0.0.1"
    if host_of(address) not in LOOPBACK:
        address_here = dask.utils.get_ip(host_of(address))  # the interface that reaches the scheduler, no other
    resources = {pool: len(group), **{f"{pool}{_DEVICE}{device.name}": 1 for device in group}}
    while not stop.is_set():
        try:
            made = dask.Worker(
                address, nthreads=len(group), resources=resources, security=security, memory_limit=0, dashboard=False,
                dashboard_address="127.0.0.1:0", death_timeout="10 s", name=f"{os.getpid()}-{group[0].name}",
                host=address_here, local_directory=folder,
            )  # fmt: skip
            async with made:
                made.http_server.stop()
                await made.finished()
        except (OSError, TimeoutError, ValueError, RuntimeError):
            pass  # no scheduler, or it is going: look again
        await asyncio.sleep(RETRY_S)


def devices_of(resources: dict[str, float]) -> list[Device]:
    """Return the devices that the resources of a worker name.

    >>> [one.name for one in devices_of({"slot": 2, "slot=a/0": 1, "slot=a/1": 1})]
    ['a/0', 'a/1']
    """
    pairs = [name.partition(_DEVICE) for name in sorted(resources) if _DEVICE in name]
    return [Device(name=name, pool=pool) for pool, _, name in pairs]


def _line(error: BaseException) -> str:
    """Return what an error says, and what is behind it: a scheduler that does not start says why only there."""
    if error.__cause__ is not None:
        return f"{' '.join(str(error).split())[:150].rstrip('.')}: {_line(error.__cause__)}"
    return " ".join(str(error).split())[:300] or type(error).__name__
