"""Executor on this host: one thread per device and core slot, no network port."""

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from nearpeak.farm.device_registry import register
from nearpeak.farm.execution import execute, opened
from nearpeak.farm.executors import Change, Errand
from nearpeak.farm.jobs import Device


class Local:
    """Supervises processes from threads of its own."""

    name = "local"

    def __init__(self, place: str, devices: Sequence[Device]) -> None:
        """Register the devices of this host; nothing runs until something is submitted."""
        self._place, self._devices = place, tuple(devices)
        register(opened(place), self._devices)
        self._threads = {
            pool: ThreadPoolExecutor(max(1, sum(device.pool == pool for device in devices)), f"farm-{pool}")
            for pool in ("device", "slot")
        }
        self._found: dict[str, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def devices(self) -> tuple[Device, ...]:
        """Return the configured devices."""
        return self._devices

    def submit(self, errand: Errand) -> str:
        """Begin an execution in a thread."""
        handle = str(errand["key"])
        with self._lock:
            if handle not in self._found:
                threads = self._threads[errand["pool"]]
                self._found[handle] = threads.submit(execute, dict(errand), self._place)
        return handle

    def poll(self, handles: Sequence[str], timeout_s: float) -> tuple[Change, ...]:
        """Return which executions ended."""
        futures = {handle: self._found[handle] for handle in handles if handle in self._found}
        if futures and timeout_s > 0:
            wait(futures.values(), timeout_s, FIRST_COMPLETED)
        ended = [handle for handle, future in futures.items() if future.done()]
        gone = [handle for handle in handles if handle not in futures]
        ended_changes = tuple(_change(handle, self._found.pop(handle)) for handle in ended)
        return ended_changes + tuple(Change(handle=handle, status="lost", note="is not known") for handle in gone)

    def cancel(self, handle: str) -> None:
        """Take back what has not begun."""
        if handle in self._found:
            self._found[handle].cancel()

    def close(self) -> None:
        """Wait for what runs."""
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)


def _change(handle: str, future: "Future[dict[str, Any]]") -> Change:
    if future.cancelled():
        return Change(handle=handle, status="cancelled")
    error = future.exception()
    if error is not None:
        return Change(handle=handle, status="lost", note=f"{type(error).__name__}: {error}")
    return Change(handle=handle, status=str(future.result()["status"]))
