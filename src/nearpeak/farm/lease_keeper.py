"""Renewal of a lease while its batch runs, and detection of leases that ended, by the steady clock of this process."""

import math
import threading
from types import TracebackType

from sqlalchemy import select

from nearpeak.errors import NearpeakError
from nearpeak.farm.job_queue import LEASE, NS, LeaseEnd
from nearpeak.farm.jobs import Lease
from nearpeak.farm.leases import renew, steady_s
from nearpeak.store import Store
from nearpeak.store.sql_dialect import now_ns, reading

MARGIN_S = 10.0
"""Longest time before a lease may have expired at which its holder stops; a sixth of a shorter life."""


class Keeper:
    """Renews a lease every quarter of its life until it is closed."""

    def __init__(self, store: Store, lease: Lease, longest_s: float = math.inf) -> None:
        """Begin to renew.

        Args:
            longest_s: time after which the lease is let go: who holds it hangs, in a driver as it may be, and its batch
                must not wait for ever.
        """
        self._store, self._lease, self._until_s = store, lease, lease.began_s + longest_s
        self._margin_s = min(MARGIN_S, lease.ttl_s / 6)
        self._renewed_s = lease.began_s
        self._lost, self._closed = threading.Event(), threading.Event()
        self._hung = False
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"lease of {lease.device.name}")
        self._thread.start()

    def __enter__(self) -> "Keeper":
        """Return the keeper."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop renewing."""
        self._closed.set()
        self._thread.join()

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost, or may be by now: then nothing may go on on the device.

        The holder's steady clock decides, counted from the request of its last renewal, so that a paused process
        knows as soon as it goes on. What was lost once stays so: a renewal that is answered late does not bring back
        the work that was stopped meanwhile.
        """
        if steady_s() > self._renewed_s + self._lease.ttl_s - self._margin_s:
            self._lost.set()
        return self._lost.is_set()

    @property
    def is_hung(self) -> bool:
        """Whether the lease was let go because its batch took longer than all of its limits."""
        return self._hung

    def _keep(self) -> None:
        wait_s = usual_s = self._lease.ttl_s / 4
        while not self._closed.wait(wait_s) and not self._lost.is_set():
            asked_s = steady_s()
            if asked_s > self._until_s:
                self._hung = True
                self._lost.set()
                return
            try:
                if not renew(self._store, self._lease):
                    self._lost.set()
                    return
            except (
                NearpeakError
            ):  # until the margin is reached it is tried again, soon: waiting for a lock took its time
                wait_s = usual_s / 8
                continue
            self._renewed_s, wait_s = asked_s, usual_s


class Deadlines:
    """Ends of leases on this process's steady clock, which a database clock that is set back does not move.

    A lease that is renewed has another end, so that only those of holders that are gone pass.
    """

    def __init__(self) -> None:
        """Know no lease yet."""
        self._ends_s: dict[LeaseEnd, float] = {}

    def overdue(self, store: Store) -> frozenset[LeaseEnd]:
        """Look at all leases, and return those that have expired by what was left when they were first seen."""
        query = select(LEASE.c.name, LEASE.c.fencing_token, LEASE.c.expires_ns).where(LEASE.c.job_batch_id.is_not(None))
        with reading(store.engine, store.name) as connection:
            at_ns = now_ns(connection)
            ends = [(row.name, row.fencing_token, row.expires_ns) for row in connection.execute(query)]
        now_s = steady_s()
        self._ends_s = {end: self._ends_s.get(end, now_s + max(0, end[2] - at_ns) / NS) for end in ends}
        return frozenset(end for end, end_s in self._ends_s.items() if end_s < now_s)
