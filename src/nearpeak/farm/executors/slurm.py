"""Executor through Slurm jobs (submitit); its `local` cluster runs them as processes of this host for tests."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak.base.folders import why_shared
from nearpeak.errors import MeasureError, MissingExtraError, SpecError
from nearpeak.farm.device_registry import register
from nearpeak.farm.execution import opened
from nearpeak.farm.executors import Change, Errand
from nearpeak.farm.jobs import Device
from nearpeak.store.store_check import ENVIRONMENT

PREFIX = "slurm@"
"""Begins the names of devices that Slurm assigns: one of a node."""
LIMIT_S = 3600.0
"""Default wall time of one batch in Slurm."""


def nodes(names: Sequence[str]) -> tuple[Device, ...]:
    """Return a device for each node that is named.

    >>> [one.name for one in nodes(["n1"])]
    ['slurm@n1']
    """
    return tuple(Device(name=f"{PREFIX}{name}", host=name) for name in names)


def execute_there(errand: dict[str, Any]) -> dict[str, Any]:
    """Run an execution within a job of Slurm; the store's address comes by the environment, never by the job's file."""
    from nearpeak.farm.execution import execute
    from nearpeak.store.store_check import place_of

    return execute(errand, place_of(None))


class Slurm:
    """Submits a job per execution; its folder must be one that all nodes share and nobody else may write."""

    name = "slurm"

    def __init__(
        self, place: str, devices: Sequence[Device], folder: Path, *, cluster: str = "slurm",
        parameters: Mapping[str, Any] = {},
    ) -> None:  # fmt: skip
        """Register the nodes' devices.

        Args:
            cluster: `slurm`, or `local` for processes of this host.
            parameters: of sbatch, e.g. partition and account.

        Raises:
            SpecError: others may write to the folder.
            MeasureError: this host has no sbatch.
        """
        try:
            import submitit
        except ImportError:
            raise MissingExtraError("farm: submitit is not installed; pip install 'nearpeak[farm]'") from None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := why_shared(folder):  # jobs are pickles, which run what they hold
            raise SpecError(f"--folder {folder}: {why}")
        try:
            self._made = submitit.AutoExecutor(folder=folder, cluster=cluster)
        except RuntimeError as error:
            raise MeasureError(f"farm: Slurm cannot be used here: {' '.join(str(error).split())[:200]}") from None
        self._common = {"timeout_min": max(1, int(LIMIT_S / 60)), "name": "nearpeak"}
        self._parameters, self._cluster = dict(parameters), cluster
        self._devices, self._found = tuple(devices), dict[str, Any]()
        os.environ[ENVIRONMENT] = place
        os.environ["PYTHONSAFEPATH"] = "1"  # submitit starts jobs by `python -m`, which imports from the working folder
        register(opened(place), self._devices)

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of the configured nodes; Slurm itself reserves them."""
        return self._devices

    def submit(self, errand: Errand) -> str:
        """Submit a job to a node whose device will do."""
        handle = str(errand["key"])
        if handle not in self._found:
            name = errand["devices"][len(self._found) % len(errand["devices"])]
            host = next(device.host for device in self._devices if device.name == name)
            device_errand = {**errand, "devices": [name]}
            options: dict[str, Any] = dict(self._common)
            if self._cluster == "slurm":
                options["slurm_additional_parameters"] = {"nodelist": host, **self._parameters}
            self._made.update_parameters(**options)
            self._found[handle] = self._made.submit(execute_there, device_errand)
        return handle

    def poll(self, handles: Sequence[str], timeout_s: float) -> tuple[Change, ...]:
        """Return which jobs ended."""
        import time

        until_s = time.monotonic() + timeout_s
        while True:
            ended = [handle for handle in handles if handle not in self._found or self._found[handle].done()]
            if ended or time.monotonic() >= until_s:
                return tuple(_change(handle, self._found.pop(handle, None)) for handle in ended)
            time.sleep(0.05)

    def cancel(self, handle: str) -> None:
        """Ask Slurm to end a job."""
        if handle in self._found:
            self._found.pop(handle).cancel()

    def close(self) -> None:
        """Leave jobs that run to their end: the store has what they publish."""


def _change(handle: str, job: Any) -> Change:
    if job is None:
        return Change(handle=handle, status="lost", note="is not known")
    try:
        return Change(handle=handle, status=str(job.result()["status"]))
    except Exception as error:  # the job ended without an answer: killed, no node, no shared folder
        return Change(handle=handle, status="lost", note=f"{type(error).__name__}: {error}".splitlines()[0][:200])
