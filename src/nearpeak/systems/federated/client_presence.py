"""Presence of clients over time: always, times of a trace that repeat, or exponential times on and off."""

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.systems.federated import keyed_draws as draws
from nearpeak.systems.federated.client_columns import Clients, Flags, Ints
from nearpeak.systems.federated.keyed_draws import Floats

MOST_CHANGES = 1_000_000
"""Changes of presence that a simulation follows."""


class Presence:
    """State of each client at a time that never goes back."""

    def __init__(self, clients: Clients, seed: int) -> None:
        """Start at time 0: traces from their beginning, means with the share of clients that they give."""
        count = clients.count
        self._clients, self._seed = clients, seed
        self._change_count = 0
        self._length = np.array([len(times) for times in clients.trace_s], np.int64)[clients.group]
        longest = max(1, *(len(times) for times in clients.trace_s))
        self._trace_s = np.array([(*times, *[np.inf] * (longest - len(times))) for times in clients.trace_s])
        drawn = ~np.isnan(clients.on_mean_s)
        self.is_constant = not (drawn.any() or self._length.any())
        share = np.divide(
            clients.on_mean_s, clients.on_mean_s + clients.off_mean_s, out=np.ones(count), where=drawn
        )  # fmt: skip
        starts_off = drawn & (draws.uniform(clients.keys, seed, draws.PRESENCE_START) > share)
        self._interval = starts_off.astype(np.int64)  # even numbers are times present
        self._until_s: Floats = np.full(count, np.inf)
        changes = np.flatnonzero(drawn | (self._length > 0))
        self._until_s[changes] = self._duration_s(changes)
        self._present, self._next_s = self._interval % 2 == 0, float(self._until_s.min())

    def at(self, now_s: float) -> tuple[Flags, Floats]:
        """Return which clients are present, and until when each stays as it is."""
        if now_s < self._next_s:
            return self._present, self._until_s
        while len(past := np.flatnonzero(self._until_s <= now_s)):
            self._change_count += 1
            if self._change_count > MOST_CHANGES:
                raise SpecError(
                    f"fleet: clients come and go more than {MOST_CHANGES:,} times; availability is too short"
                )
            self._interval[past] += 1
            self._until_s[past] += self._duration_s(past)
        self._present, self._next_s = self._interval % 2 == 0, float(self._until_s.min())
        return self._present, self._until_s

    def _duration_s(self, places: Ints) -> Floats:
        """Return how long the current intervals of some clients last."""
        clients, interval = self._clients, self._interval[places]
        means_s = np.where(interval % 2 == 0, clients.on_mean_s[places], clients.off_mean_s[places])
        drawn_s = -means_s * np.log(draws.uniform(clients.keys[places], self._seed, draws.PRESENCE, interval))
        length = self._length[places]
        stated_s = self._trace_s[clients.group[places], interval % np.maximum(length, 1)]
        return np.where(length > 0, stated_s, drawn_s)
