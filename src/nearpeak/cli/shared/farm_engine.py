"""Set-up of `nearpeak farm up` and `join`: executor (local, Dask or Slurm), devices, store and shutdown."""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.cli.shared.options import seconds_of
from nearpeak.errors import NearpeakError, NotFoundError, SpecError
from nearpeak.units import parse_share

if TYPE_CHECKING:
    from nearpeak.farm.dispatcher import Settings
    from nearpeak.farm.executors import Executor
    from nearpeak.farm.jobs import Device
    from nearpeak.store import Store

EXECUTORS = ("local", "dask", "slurm")
LISTEN = "127.0.0.1:8786"
"""Where the scheduler of Dask listens, unless somebody says otherwise."""


class Engine:
    """The engine that the options name, with the scheduler and workers of this process where it is Dask."""

    def __init__(
        self, name: str, place: str, local_devices: "tuple[Device, ...]", dask: tuple[str, Path | None],
        slurm: tuple[list[str], Path | None, dict[str, str]],
    ) -> None:  # fmt: skip
        """Start what the engine needs.

        Args:
            dask: where the scheduler listens, and the folder of certificates.
            slurm: nodes, the folder that they share, parameters of sbatch.
        """
        self.address, self._closing = "", list[Any]()
        if name == "local":
            from nearpeak.farm.executors.local import Local

            self.executor: Executor = Local(place, local_devices)
        elif name == "dask":
            try:
                self.executor = self._dask(place, local_devices, *dask)
            except BaseException:
                self._end()
                raise
        else:
            from nearpeak.farm.executors.slurm import Slurm, nodes

            node, folder, parameters = slurm
            assert folder is not None  # `check_engine` saw to it
            self.executor = Slurm(place, (*nodes(node), *local_devices), folder, parameters=parameters)

    def __enter__(self) -> "Engine":
        """Return the engine."""
        return self

    def __exit__(self, *error: object) -> None:
        """Let what runs end, then close."""
        self.executor.close()
        self._end()

    def _end(self) -> None:
        """End the workers, then the scheduler."""
        for closing in reversed(self._closing):
            closing.close()

    def _dask(self, place: str, local_devices: "tuple[Device, ...]", listen: str, tls: Path | None) -> "Executor":
        from nearpeak.farm import dask_hosts as hosts
        from nearpeak.farm.device_registry import register
        from nearpeak.farm.executors.dask import Dask, join_as

        security = hosts.security_of(tls, listen)
        self._closing.append(scheduler := hosts.scheduler(listen, security))
        self.address = scheduler.address
        if local_devices:
            register(opened_store(place), local_devices)
            join_as(place)
            self._closing.append(hosts.workers(self.address, security, local_devices))
        return Dask(self.address, tls)


def check_engine(
    name: str, local_devices: "tuple[Device, ...]", dask: tuple[str, Path | None],
    slurm: tuple[list[str], Path | None, dict[str, str]],
) -> None:  # fmt: skip
    """Refuse options that contradict each other or that the engine does not read, before a store is made.

    Args:
        dask: as for `Engine`.
        slurm: likewise.
    """
    if name not in EXECUTORS:
        raise SpecError(f"--executor {name!r}: is not known; there are {', '.join(EXECUTORS)}")
    listen, tls = dask
    node, folder, parameters = slurm
    used = {"--listen": listen != LISTEN, "--tls": tls is not None}
    if name != "dask" and (
        option := next((name_of_option for name_of_option, is_given in used.items() if is_given), "")
    ):
        raise SpecError(f"{option}: is for --executor dask; {name} opens no port")
    used = {"--node": bool(node), "--folder": folder is not None, "--slurm": bool(parameters)}
    if name != "slurm" and (
        option := next((name_of_option for name_of_option, is_given in used.items() if is_given), "")
    ):
        raise SpecError(f"{option}: is for --executor slurm, not for {name}")
    if name == "local" and not local_devices:
        raise SpecError("farm up: has no devices; add --device cpu, --device gpus or --slots N")
    if name == "slurm" and (not node or folder is None):
        raise SpecError("farm up: slurm needs --node NAME and --folder DIR, which all nodes share")
    if name == "dask":
        from nearpeak.farm.dask_hosts import security_of

        security_of(tls, listen)


def settings_of(ttl: str, max_load: float, max_noise: str) -> "Settings":
    """Return how the dispatcher works, by the options."""
    from nearpeak.farm.device_health import Limits
    from nearpeak.farm.dispatcher import Settings

    ttl_s = seconds_of(ttl, "--ttl")
    if not 1 <= ttl_s <= 3600:
        raise SpecError(f"--ttl {ttl!r}: must be from 1 s to 3600 s")
    noise = parse_share(max_noise, "--max-noise") if max_noise else math.inf
    return Settings(ttl_s=ttl_s, wait_s=ttl_s, noise_ratio=noise, limits=Limits(load_ratio=max_load))


def own_devices(names: list[str], slots: int) -> "tuple[Device, ...]":
    """Return the devices and slots of this host that the options name."""
    from nearpeak.farm.device_registry import named_devices, slots_of

    return (*named_devices(names), *slots_of(slots))


def opened_store(place: str, *, create: bool = True) -> "Store":
    """Return the store.

    Raises:
        NotFoundError: the store does not exist, and must not be created.
    """
    from nearpeak.store import open_store

    try:
        return open_store(place, create=create)
    except NotFoundError as error:
        if "there is no store" not in str(error):
            raise
        raise NotFoundError(f"{place}: there is no store; 'nearpeak farm submit' and 'farm up' make one") from None


@contextmanager
def ended(opened: "Store", *, is_counted: bool = True) -> Iterator[None]:
    """Deregister this host when the block ends, and report the outcome of its jobs."""
    from nearpeak.farm.device_registry import leave
    from nearpeak.farm.farm_status import overview
    from nearpeak.reports.history.farm import counted_text

    try:
        yield
    finally:
        with suppress(NearpeakError):  # a store that is away sees this host fall silent
            leave(opened)
    if is_counted:
        jobs = overview(opened)["jobs"]
        hint = "; 'nearpeak farm status --state failed' says why" if jobs["failed"] else ""
        sys.stderr.write(f"{counted_text(jobs)}{hint}\n")


def parameters_of(texts: list[str]) -> dict[str, str]:
    """Return the parameters of sbatch.

    >>> parameters_of(["partition=gpu"])
    {'partition': 'gpu'}
    """
    parameters = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise SpecError(f"--slurm {text!r}: is not NAME=VALUE; e.g. partition=gpu")
        parameters[name] = value
    return parameters


@contextmanager
def told_to_end() -> Iterator[threading.Event]:
    """Yield an event that a stop signal sets; a second signal a second later ends the process at once.

    Within a second it is the same question: some send a signal to a process and to its group.
    """
    stop, first_s = threading.Event(), list[float]()

    def stop_requested(number: int, _: object) -> None:
        first_s.append(time.monotonic())
        if first_s[-1] - first_s[0] > 1.0:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    before = {number: signal.signal(number, stop_requested) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
