"""Bisection whose comparison rounds run as farm jobs on one device."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nearpeak.core.runs.launch_pairs import Launch
from nearpeak.errors import MeasureError, NearpeakError
from nearpeak.farm import farm_status, job_queue
from nearpeak.farm.batch_priority import priority_of
from nearpeak.farm.device_registry import SILENT_S, hosts
from nearpeak.farm.jobs import FINAL, BatchRequest, JobRequest
from nearpeak.store import Store
from nearpeak.store.rows.row_identity import new_uid

_POLL_S = 0.2


class FarmWorkshop:
    """Runs the rounds of a bisection as jobs of the farm, and waits for each.

    The repository must lie at the same path on the hosts of the farm.
    """

    def __init__(self, store: Store, repository: Path, run: str, build: str = "", *, limit_s: float = 600.0) -> None:
        """Store the commands; nothing is submitted before the first round."""
        self._store = store
        self._common = {"repository": str(repository.resolve()), "run": run, "build": build, "limit_s": limit_s}
        self._name, self._count = f"bisect:{new_uid()}", 0

    def round(self, baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[Launch, ...] | None:
        """Return one round A B B A in its order; none where one of the two cannot be built or run.

        Raises:
            MeasureError: the farm could not run it, or none runs.
        """
        payload = {**self._common, "baseline": dict(baseline), "candidate": dict(candidate)}
        job = JobRequest(kind="launches", payload=payload, key=f"{self._name} {self._count}")
        request = BatchRequest(
            jobs=(job,), pool="device", comparison=self._name, round=self._count,
            priority=priority_of("bisect"), trigger="bisect",
        )  # fmt: skip
        self._count += 1
        refused = job_queue.submit(self._store, [request]).refused
        if refused:
            raise MeasureError(f"bisect: {refused[0][1]}")
        status = self._waited(job.uid)
        if status["state"] != "done":
            why = (status["result"] or {}).get("message") or status["batch"]["note"]
            raise MeasureError(f"bisect: a round of the farm ended as {status['state']}: {why}")
        launches = status["result"]["launches"]
        return None if launches is None else tuple(Launch(**launch) for launch in launches)

    def _waited(self, uid: str) -> dict[str, Any]:
        """Return a finished job; a job whose wait is interrupted is cancelled."""
        begun_s = time.monotonic()
        try:
            while (status := farm_status.job(self._store, uid))["state"] not in FINAL:
                self._check_heard(time.monotonic() - begun_s)
                time.sleep(_POLL_S)
        except BaseException:
            with suppress(NearpeakError):
                job_queue.cancel(self._store, [uid])
            raise
        return status

    def _check_heard(self, waited_s: float) -> None:
        """Refuse to wait when no host has sent a heartbeat for long."""
        if waited_s > SILENT_S and min((row[2] for row in hosts(self._store)), default=math.inf) > SILENT_S:
            raise MeasureError("bisect: no farm runs on this store; start one by 'nearpeak farm up'")
