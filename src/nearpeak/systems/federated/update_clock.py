"""Event simulation of asynchronous and buffered federated learning, where clients start again one by one."""

import heapq
from collections.abc import Callable

import numpy as np

from nearpeak.core.federated.round_rules import SelectionPolicy, ServerRule
from nearpeak.errors import SpecError
from nearpeak.systems.federated.client_columns import Clients
from nearpeak.systems.federated.client_presence import Presence
from nearpeak.systems.federated.client_selection import rank_values
from nearpeak.systems.federated.keyed_draws import Floats
from nearpeak.systems.federated.round_log import RoundLog

_MOST_LOST = 20
"""Lost updates per wanted one at which a simulation gives up."""


class _Run:
    """State of the event loop; lists by client, as single numbers are read and written."""

    def __init__(self, idle: "_IdleClients", count: int) -> None:
        self.idle = idle
        self.heap: list[tuple[float, int, int, int, float, float, bool]] = []
        self.started, self.lost = [0] * count, [0] * count
        self.busy_s, self.idle_s = [0.0] * count, [0.0] * count
        self.updates: list[tuple[int, int, int, float]] = []


def update_events(
    clients: Clients, policy: SelectionPolicy, server: ServerRule, *, round_count: int, most: int, seed: int = 0,
    factors: Callable[[int], Floats | None] | None = None,
) -> RoundLog:  # fmt: skip
    """Return the log of a federation in which `most` clients train at any time.

    A round is as many updates as clients train at a time, so that joules and bytes compare with synchronous rounds.
    Work that is under way at the end is not counted.

    Raises:
        SpecError: the policy needs all clients at once, no client meets the deadline, or none stays long enough.

    >>> from nearpeak.systems.federated.client_columns import clients as columns, example
    >>> three = columns(*example(), model_bytes=46_758_000)
    >>> log = update_events(three, SelectionPolicy(name="random"), ServerRule(name="async"), round_count=2, most=3)
    >>> log.update_client.tolist(), log.update_at_s[0].round(3), log.staleness.tolist()
    ([0, 1, 0, 0, 1, 0], np.float64(9.881), [0, 1, 1, 0, 2, 1])
    """
    if policy.name == "omnifedge":
        raise SpecError(f"policy omnifedge: needs the updates of all clients at once; --server {server.words} has none")
    run = _begin(clients, policy, seed)
    most = min(most, run.idle.count)
    wanted, size = round_count * most, server.buffer_count if server.name == "buffered" else 1
    factor_of = _Factors(clients, seed, factors)
    for _ in range(most):
        _start(run, factor_of, 0.0, 0)
    version, gathered, fails = 0, 0, 0
    while len(run.updates) < wanted:
        if not run.heap:
            raise SpecError("fleet: no client is there to be asked")
        end_s, _, client, base, compute_s, wait_s, is_whole = heapq.heappop(run.heap)
        run.busy_s[client] += compute_s
        run.idle_s[client] += wait_s
        if is_whole:
            run.updates.append((client, version, base, end_s))
            gathered += 1
            if gathered == size:
                version, gathered = version + 1, 0
        else:
            run.lost[client] += 1
            fails += 1
            if fails > _MOST_LOST * wanted:
                raise SpecError("fleet: clients leave before they are done, nearly always; lengthen availability")
        run.idle.put(client)
        _start(run, factor_of, end_s, version)
    return _log(run, clients, round_count, most)


def _begin(clients: Clients, policy: SelectionPolicy, seed: int) -> _Run:
    usable = np.arange(clients.count)
    if policy.deadline_s is not None:
        usable = np.flatnonzero(clients.round_s <= policy.deadline_s)
        if not len(usable):
            raise SpecError(f"policy {policy.words}: the fastest client needs {clients.round_s.min():.4g} s")
    order = usable[np.argsort(clients.keys[usable])]
    values = rank_values(clients, policy)
    if values is not None:
        order = order[np.argsort(values[order], kind="stable")]
    idle = _IdleClients(order.tolist(), Presence(clients, seed), is_ranked=values is not None, seed=seed)
    return _Run(idle, clients.count)


class _Factors:
    """Factors of compute times by client and start, remembered by start as columns."""

    def __init__(self, clients: Clients, seed: int, factors: Callable[[int], Floats | None] | None) -> None:
        self._of = factors if factors is not None else lambda count: clients.factors(seed, count)
        first = self._of(0)
        self._known = [None if first is None else first.tolist()]
        self.link_s = (clients.down_s.tolist(), clients.up_s.tolist())
        self.compute_s, self.key = clients.compute_s.tolist(), clients.keys.tolist()

    def __call__(self, client: int, count: int) -> float:
        if self._known[0] is None:
            return 1.0
        while len(self._known) <= count:
            column = self._of(len(self._known))
            self._known.append([] if column is None else column.tolist())
        row = self._known[count]
        return float(row[client]) if row else 1.0


def _start(run: _Run, factor_of: _Factors, now_s: float, version: int) -> None:
    """Start the next client, now or when it comes back."""
    client, begun_s, until_s = run.idle.take(now_s)
    down_s, up_s = factor_of.link_s[0][client], factor_of.link_s[1][client]
    compute_s = factor_of.compute_s[client] * factor_of(client, run.started[client])
    run.started[client] += 1
    end_s = begun_s + down_s + compute_s + up_s
    is_whole = end_s <= until_s
    if not is_whole:
        end_s = until_s
        compute_s = min(max(until_s - begun_s - down_s, 0.0), compute_s)
    entry = (end_s, factor_of.key[client], client, version, compute_s, end_s - begun_s - compute_s, is_whole)
    heapq.heappush(run.heap, entry)


class _IdleClients:
    """Clients that nobody has asked: drawn evenly, or the best of a ranking first; present ones before absent ones."""

    def __init__(self, order: list[int], presence: Presence, *, is_ranked: bool, seed: int) -> None:
        self._order, self._presence, self._is_ranked = order, presence, is_ranked
        self._rank = {client: rank for rank, client in enumerate(order)}
        self._places = np.array(order)
        self._draws = np.random.default_rng(seed)
        self._free = list(range(len(order)))  # ranks: a heap where ranked; of clients that never leave
        self._is_free = np.ones(len(order), np.bool_)  # by rank; of clients that come and go
        self.count = len(order)

    def put(self, client: int) -> None:
        rank = self._rank[client]
        if not self._presence.is_constant:
            self._is_free[rank] = True
        elif self._is_ranked:
            heapq.heappush(self._free, rank)
        else:
            self._free.append(rank)

    def take(self, now_s: float) -> tuple[int, float, float]:
        """Return a client, when it starts, and until when it stays."""
        if self._presence.is_constant:
            return self._order[self._pop()], now_s, np.inf
        present, until_s = self._presence.at(now_s)
        here = (self._is_free & present[self._places]).nonzero()[0]
        if len(here):
            rank = int(here[0 if self._is_ranked else int(self._draws.random() * len(here))])
        else:
            rank = int(np.argmin(np.where(self._is_free, until_s[self._places], np.inf)))
        self._is_free[rank] = False
        client = self._order[rank]
        if len(here):
            return client, now_s, float(until_s[client])
        return client, float(until_s[client]), np.inf  # just back; the length of this stay is not drawn ahead

    def _pop(self) -> int:
        if self._is_ranked:
            return heapq.heappop(self._free)
        if len(self._free) > 1:  # its order must not show in what is drawn
            place = int(self._draws.random() * len(self._free))
            self._free[place], self._free[-1] = self._free[-1], self._free[place]
        return self._free.pop()


def _log(run: _Run, clients: Clients, round_count: int, most: int) -> RoundLog:
    """Return the columns of a finished run."""
    client, version, base, at_s = (np.array(column) for column in zip(*run.updates, strict=True))
    ends_s = np.concatenate([[0.0], at_s[most - 1 :: most]])
    counted, lost = np.bincount(client, minlength=clients.count), np.array(run.lost)
    none = np.full(round_count, -1)
    return RoundLog(
        round_s=np.diff(ends_s), straggler=none, cause=none, update_client=client, update_round=version,
        update_base=base, update_at_s=at_s, asked_count=counted + lost, counted_count=counted,
        late_count=np.zeros(clients.count, np.int64), lost_count=lost, busy_s=np.array(run.busy_s),
        idle_s=np.array(run.idle_s), down_bytes=(counted + lost) * clients.model_bytes,
        up_bytes=counted * clients.model_bytes,
    )  # fmt: skip
