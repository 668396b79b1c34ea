"""Executor on a Dask cluster; Dask may run an execution twice, and the store accepts one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.errors import MeasureError
from nearpeak.farm.dask_hosts import devices_of, distributed, security_of, tls_address
from nearpeak.farm.executors import Change, Errand
from nearpeak.farm.jobs import Device

_PLACE: dict[str, str] = {}
"""Store of a worker's process, set when it joins: its address may hold a password, and never travels."""
CONNECT_S = 30.0
"""Longest wait for the scheduler."""


def join_as(place: str) -> None:
    """Say where the store is, as this host reaches it."""
    _PLACE["here"] = place


def execute_here(errand: dict[str, Any]) -> dict[str, Any]:
    """Run an execution on a device of the worker that Dask chose: those of other hosts are not to be reached here."""
    from nearpeak.farm.execution import execute

    worker = distributed().get_worker()
    names = {device.name for device in devices_of(worker.state.total_resources)}
    local_errand = {**errand, "devices": [name for name in errand["devices"] if name in names]}
    return execute(local_errand, _PLACE["here"])


class Dask:
    """A client of a scheduler."""

    name = "dask"

    def __init__(self, address: str, tls: Path | None = None) -> None:
        """Connect.

        Raises:
            MeasureError: there is no scheduler at the address, or it refuses this host's certificate.
        """
        dask = distributed()
        self._distributed, security = dask, security_of(tls, address)
        try:
            self._client = dask.Client(tls_address(address), security=security, set_as_default=False, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise MeasureError(f"{address}: no scheduler answers: {' '.join(str(error).split())[:200]}") from None
        self._found: dict[str, Any] = {}
        self._where: dict[str, list[str]] = {}

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of the workers that are connected now."""
        self._where, devices = {}, dict[str, Device]()
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        for address, info in workers.items():
            for device in devices_of(info["resources"]):
                self._where.setdefault(device.name, []).append(address)
                devices[device.name] = device
        return tuple(devices.values())

    def submit(self, errand: Errand) -> str:
        """Give a task to the scheduler: any worker that has one of the devices, one task per device at a time."""
        handle = str(errand["key"])
        if handle not in self._found:
            where = sorted({address for name in errand["devices"] for address in self._where.get(name, ())})
            self._found[handle] = self._client.submit(
                execute_here, dict(errand), key=handle, pure=False, retries=0, resources={errand["pool"]: 1},
                workers=where or None, priority=-round(100 * errand["priority"]),
            )  # fmt: skip
        return handle

    def poll(self, handles: Sequence[str], timeout_s: float) -> tuple[Change, ...]:
        """Return which tasks ended, or are known to nobody any more."""
        futures = {name: self._found[name] for name in handles if name in self._found}
        if futures and timeout_s > 0 and not any(future.done() for future in futures.values()):
            try:
                with self._client.as_current():
                    self._distributed.wait(list(futures.values()), timeout=timeout_s, return_when="FIRST_COMPLETED")
            except (TimeoutError, self._distributed.TimeoutError):
                return ()
            except self._distributed.client.FutureCancelledError:
                pass
        ended = [Change(handle=name, status="lost", note="is not known") for name in handles if name not in futures]
        for handle, future in futures.items():
            if future.status != "pending":
                ended.append(_change(handle, future))
                self._found.pop(handle).release()
        return tuple(ended)

    def cancel(self, handle: str) -> None:
        """Take a task back; one that runs goes on to its end."""
        if handle in self._found:
            self._client.cancel([self._found.pop(handle)], force=True)

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close(timeout=5)


def _change(handle: str, future: Any) -> Change:
    if future.status == "finished":
        try:
            return Change(handle=handle, status=str(future.result(timeout=10)["status"]))
        except Exception as error:  # the worker that kept the answer is gone; the store has what counts
            return Change(handle=handle, status="lost", note=type(error).__name__)
    if future.status == "error":
        return Change(handle=handle, status="lost", note=" ".join(str(future.exception(timeout=10)).split())[:200])
    return Change(handle=handle, status="lost", note=future.status)
