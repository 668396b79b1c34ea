"""Selection of a round's clients: at random, by speed, by energy, or all of them; ties go by random key."""

import numpy as np

from nearpeak.core.federated.round_rules import SelectionPolicy
from nearpeak.errors import SpecError
from nearpeak.systems.federated import keyed_draws as draws
from nearpeak.systems.federated.client_columns import Clients, Flags, Ints
from nearpeak.systems.federated.keyed_draws import Floats


def rank_values(clients: Clients, policy: SelectionPolicy) -> Floats | None:
    """Return the figure by which a policy prefers clients, least first; none for policies that draw or take all.

    Raises:
        SpecError: energy is asked of clients whose power is unknown.

    >>> from nearpeak.systems.federated.client_columns import clients, example
    >>> three = clients(*example(), model_bytes=46_758_000)
    >>> rank_values(three, SelectionPolicy(name="energy")).argmin()
    np.int64(0)
    """
    if policy.name == "fastest":
        return clients.round_s
    if policy.name != "energy":
        return None
    link_s = clients.down_s + clients.up_s
    energy_j = clients.compute_s * clients.busy_w + link_s * clients.idle_w
    if np.isnan(energy_j).any():
        raise SpecError("policy energy: the power of a client is unknown; state power and idle in the fleet file")
    values: Floats = energy_j / np.maximum(clients.epoch_count * clients.sample_count, 1)
    return values


def chosen_clients(
    clients: Clients, policy: SelectionPolicy, present: Flags, most: int, *, seed: int, round_count: int,
    values: Floats | None,
) -> Ints:  # fmt: skip
    """Return the clients of a round, in order of their places.

    Args:
        most: clients that are asked at most.
        values: what `rank_values` gives.
    """
    places: Ints = np.flatnonzero(present)
    if len(places) <= most or policy.name == "omnifedge":
        return places
    if values is None:
        drawn = draws.uniform(clients.keys[places], seed, draws.SELECTION, round_count)
        return np.sort(places[np.argpartition(drawn, most - 1)[:most]])
    order = np.lexsort((clients.keys[places], values[places]))
    return np.sort(places[order[:most]])
