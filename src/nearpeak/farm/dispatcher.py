"""Stateless dispatcher that reads the queue and submits the most urgent batches to an executor."""

import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field

from nearpeak.errors import NearpeakError, SpecError
from nearpeak.farm import batch_priority, job_queue
from nearpeak.farm.comparison_rounds import note_noise
from nearpeak.farm.device_health import Limits
from nearpeak.farm.device_registry import DeviceState, devices, heartbeat
from nearpeak.farm.executors import Errand, Executor
from nearpeak.farm.jobs import WaitingBatch
from nearpeak.farm.lease_keeper import Deadlines
from nearpeak.farm.leases import TTL_S
from nearpeak.farm.unplaceable_jobs import fitting, wanted
from nearpeak.store import Store

AHEAD = 2
"""Executions submitted ahead per device, so that the next one starts when one ends."""
REST_S, LONGEST_REST_S = 1.0, 60.0
"""Delay of a batch whose execution the executor lost; it doubles each time, up to the longest."""
MISSING_S = 5.0
"""Delay before jobs without a fitting device are reported, as Dask hosts join one by one."""
HEARTBEAT_S = 15.0
"""Time between two signs of life in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a dispatcher works."""

    ttl_s: float = TTL_S
    """Life of a lease."""
    wait_s: float = TTL_S
    """How long an execution waits for a lease."""
    poll_s: float = 0.5
    """Longest time between two looks at the queue."""
    noise_ratio: float = math.inf
    """Scatter (see `DeviceState.noise_ratio`) above which a device serves nothing that asks for small differences."""
    limits: Limits = field(default_factory=Limits)
    """What a device must be like to be measured on."""
    grace_s: float = 5.0
    """Time between asking a process to end and ending it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An execution that the engine has."""

    batch: int
    """Identity of its batch within the store."""
    devices: frozenset[str]
    """Devices that will do."""
    comparison: str
    """Comparison that it is a round of; empty for none."""


class Dispatcher:
    """Hands batches to an engine; all that it knows is in the store, so that another one can go on at any time."""

    def __init__(self, store: Store, executor: Executor, settings: Settings = Settings()) -> None:
        """Keep what works together."""
        self._store, self._executor, self._settings = store, executor, settings
        self._out: dict[str, _Sent] = {}
        self._beat_s, self._deadlines = -math.inf, Deadlines()
        self._resting: dict[int, tuple[float, float]] = {}
        self._missing: dict[str, float] = {}

    def step(self) -> int:
        """Look once: what expired goes back, what ended is forgotten, what is urgent is handed on.

        Returns the number of executions that the engine has.
        """
        settings = self._settings
        if time.monotonic() - self._beat_s > HEARTBEAT_S:
            heartbeat(self._store, self._executor.name, {"out": len(self._out)})
            self._beat_s = time.monotonic()
        job_queue.reclaim(self._store, self._deadlines.overdue(self._store))
        here = {item.name for item in self._executor.devices()}
        for handle in [handle for handle, item in self._out.items() if not item.devices & here]:
            self._executor.cancel(handle)  # its hosts are gone; where one comes back, the batch is handed on again
            del self._out[handle]
        self._hand_on(here)
        for item in self._executor.poll(tuple(self._out), settings.poll_s if self._out else 0.0):
            sent = self._out.pop(item.handle, None)
            if sent is not None and item.status == "lost":
                _, rest_s = self._resting.get(sent.batch, (0.0, REST_S / 2))
                rest_s = min(2 * rest_s, LONGEST_REST_S)
                self._resting[sent.batch] = (time.monotonic() + rest_s, rest_s)
            if sent is not None and item.status == "published":
                self._resting.pop(sent.batch, None)
                note_noise(self._store, sent.comparison)
        if not self._out:
            time.sleep(settings.poll_s)
        return len(self._out)

    def run(self, is_done: Callable[[], bool]) -> None:
        """Run until `is_done`, and retry while the store or the executor is unreachable.

        Each error is printed once, on standard error.

        Raises:
            SpecError: something is wrong that does not go by.
        """
        reported = set[str]()
        while not is_done():
            try:
                self.step()
            except SpecError:
                raise
            except (NearpeakError, OSError) as error:
                if (message := f"{type(error).__name__}: {error}") not in reported:
                    reported.add(message)
                    sys.stderr.write(f"farm: {message}; it is tried again\n")
                time.sleep(self._settings.poll_s)

    def _hand_on(self, here: Collection[str]) -> None:
        known = devices(self._store)
        usable = [item for item in known if item.service == "open" and item.device.name in here]
        out = {item.batch for item in self._out.values()}
        out |= {batch for batch, (until_s, _) in self._resting.items() if time.monotonic() < until_s}
        waiting = [item for item in job_queue.waiting(self._store) if item.id not in out]
        if not waiting:
            return
        used = job_queue.used_s(self._store)
        self._tell_missing(waiting, [item for item in known if item.device.name in here])
        for item in batch_priority.ordered(waiting, used):
            fit = [state for state in usable if serves(state, item, self._settings.noise_ratio)]
            fit = [state for state in fit if state.device.name not in item.dead] or fit
            if fit and self._room(fit):
                self._submit(item, fit)

    def _tell_missing(self, waiting: Sequence[WaitingBatch], here: Sequence[DeviceState]) -> None:
        """Say once, on standard error, which devices are waited for that no host lends: a wrong name waits for ever."""
        requirements = {(item.pool, item.device, item.model) for item in waiting}
        missing = {wanted(*item) for item in requirements if not fitting(here, *item)}
        now_s = time.monotonic()
        self._missing = {item: self._missing.get(item, now_s) for item in missing}
        for text, since_s in self._missing.items():
            if now_s - since_s >= MISSING_S:
                sys.stderr.write(f"farm: jobs wait for {text}, which no host of this farm lends\n")
                self._missing[text] = math.inf

    def _room(self, fit: Sequence[DeviceState]) -> bool:
        """Say whether the engine has less than its share for these devices."""
        names = {item.device.name for item in fit}
        return sum(bool(names & item.devices) for item in self._out.values()) < AHEAD * len(fit)

    def _submit(self, batch: WaitingBatch, fit: Sequence[DeviceState]) -> None:
        names = tuple(state.device.name for state in fit)
        errand: Errand = {
            "key": f"{batch.uid}-{batch.attempt_count}-{time.time_ns()}", "batch": batch.id, "pool": batch.pool,
            "devices": list(names), "ttl_s": self._settings.ttl_s, "wait_s": self._settings.wait_s,
            "priority": batch_priority.rank(batch), "limits": asdict(self._settings.limits),
            "grace_s": self._settings.grace_s,
        }  # fmt: skip
        self._out[self._executor.submit(errand)] = _Sent(
            batch=batch.id, devices=frozenset(names), comparison=batch.comparison
        )


def serves(state: DeviceState, batch: WaitingBatch, noise_ratio: float) -> bool:
    """Say whether a device will do for a batch."""
    device = state.device
    if device.pool != batch.pool or batch.device not in ("", device.name) or batch.model not in ("", device.model):
        return False
    is_noisy = state.noise_ratio is not None and state.noise_ratio > noise_ratio
    return not (is_noisy and batch.priority in batch_priority.NOISY)
