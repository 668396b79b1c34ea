"""Log of simulated federated rounds: times, stragglers with causes, and energy and bytes of each client."""

from dataclasses import dataclass

import numpy as np

from nearpeak.systems.federated.client_columns import Clients, Ints
from nearpeak.systems.federated.keyed_draws import Floats

CAUSES = ("compute", "link", "data")
"""Causes of a straggler: a slower board, slower links, or more samples than the median client of its round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLog:
    """What the clock of a federation saw; updates are in the order in which they count."""

    round_s: Floats
    """Time of each round; without waiting rounds, of as many updates as a round has clients."""
    straggler: Ints
    """Last client of each round; -1 where none counted, and for servers that do not wait."""
    cause: Ints
    """Place of its cause in CAUSES; -1 without a straggler."""
    update_client: Ints
    """Client of each update."""
    update_round: Ints
    """Round, or version of the model, that each update goes into."""
    update_base: Ints
    """Version of the model that each update started from."""
    update_at_s: Floats
    """Time at which each update counts."""
    asked_count: Ints
    """How often each client was asked."""
    counted_count: Ints
    """How often each client's update counted."""
    late_count: Ints
    """How often each client missed the deadline."""
    lost_count: Ints
    """How often each client left before it was done."""
    busy_s: Floats
    """Time of training of each client."""
    idle_s: Floats
    """Time of each client with links and waiting, while it takes part."""
    down_bytes: Ints
    """Bytes that each client received."""
    up_bytes: Ints
    """Bytes that each client sent."""
    estimate_s: float = 0.0
    """Time of loss estimates of per-client models; part of the rounds."""

    @property
    def total_s(self) -> float:
        """Time of all rounds."""
        return float(self.round_s.sum())

    @property
    def staleness(self) -> Ints:
        """Versions of the model that were made while each update was under way."""
        return self.update_round - self.update_base

    def energy_j(self, clients: Clients) -> Floats:
        """Return the energy of each client while it takes part; NaN where its power is unknown."""
        busy_j = np.where(self.busy_s > 0, self.busy_s * clients.busy_w, 0.0)
        energy_j: Floats = busy_j + np.where(self.idle_s > 0, self.idle_s * clients.idle_w, 0.0)
        return energy_j


def jain_index(counts: Ints | Floats) -> float:
    """Return Jain's index of fairness: 1 where all are equal, 1/n where one has all.

    Source: Jain, Chiu and Hawe 1984, "A quantitative measure of fairness and discrimination", DEC-TR-301.

    >>> jain_index(np.array([3, 3, 3])), jain_index(np.array([9, 0, 0]))
    (1.0, 0.3333333333333333)
    """
    squares = len(counts) * float((counts.astype(np.float64) ** 2).sum())
    return float(counts.sum()) ** 2 / squares if squares else 1.0


def straggler_cause(clients: Clients, chosen: Ints, last: int, compute_s: float) -> int:
    """Return the cause of a straggler: the part in which it exceeds the median client of its round most.

    Args:
        chosen: clients of the round.
        compute_s: time of its training in this round.

    >>> from nearpeak.systems.federated.client_columns import clients, example
    >>> three = clients(*example(), model_bytes=46_758_000)
    >>> CAUSES[straggler_cause(three, np.arange(3), 2, 8.0)]
    'link'
    """
    link_s = clients.down_s + clients.up_s
    samples, sample_s = np.median(clients.sample_count[chosen]), np.median(clients.sample_s[chosen])
    data_s = clients.epoch_count * (clients.sample_count[last] - samples) * sample_s
    usual_s = clients.epoch_count * samples * sample_s
    excess_s = (compute_s - usual_s - data_s, link_s[last] - np.median(link_s[chosen]), data_s)
    return int(np.argmax(excess_s))
