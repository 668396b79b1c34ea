"""Simulation of synchronous federated rounds, each as long as its slowest counted client."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nearpeak.core.federated.round_rules import SelectionPolicy
from nearpeak.systems.federated.client_columns import Clients, Flags, Ints
from nearpeak.systems.federated.client_presence import Presence
from nearpeak.systems.federated.client_selection import chosen_clients, rank_values
from nearpeak.systems.federated.keyed_draws import Floats
from nearpeak.systems.federated.round_log import RoundLog, straggler_cause

ESTIMATE_ROUNDS, HELD_RATIO, FORWARD_RATIO = 5, 0.1, 1 / 3
"""Rounds between loss estimates of per-client models; share of the samples that is held out for them; a forward pass
over a training step, whose backward pass does twice the products of the forward pass."""


class _Round(NamedTuple):
    """Times of a round's clients."""

    counted: Flags
    late: Flags
    lost: Flags
    end_s: Floats
    busy_s: Floats
    length_s: float


def synchronous_rounds(
    clients: Clients, policy: SelectionPolicy, *, round_count: int, most: int, seed: int = 0,
    factors: Callable[[int], Floats | None] | None = None,
) -> RoundLog:  # fmt: skip
    """Return the log of rounds in which the server waits.

    Args:
        most: clients of a round, at most.
        factors: what each client's compute time is multiplied with in a round; by default the spread of the fleet.

    >>> from nearpeak.systems.federated.client_columns import clients as columns, example
    >>> three = columns(*example(), model_bytes=46_758_000)
    >>> log = synchronous_rounds(three, SelectionPolicy(name="random"), round_count=1, most=3)
    >>> round(log.total_s, 3), log.energy_j(three).round(2).tolist()
    (45.406, [251.03, 164.22, 114.81])
    """
    presence, values = Presence(clients, seed), rank_values(clients, policy)
    tally = np.zeros((4, clients.count), np.int64)
    busy_s, idle_s = np.zeros(clients.count), np.zeros(clients.count)
    down, updates, now_s, estimates_s = np.zeros(clients.count, np.int64), list[tuple[Ints, int, float]](), 0.0, 0.0
    lengths, last, causes = np.zeros(round_count), np.full(round_count, -1), np.full(round_count, -1)
    for number in range(round_count):
        begun_s = now_s
        present, until_s = presence.at(now_s)
        while not present.any():
            now_s = float(until_s.min())
            present, until_s = presence.at(now_s)
        chosen = chosen_clients(
            clients, policy, present, most, seed=seed, round_count=number, values=values
        )  # fmt: skip
        factor = factors(number) if factors is not None else clients.factors(seed, number)
        compute_s = clients.compute_s[chosen] * (1.0 if factor is None else factor[chosen])
        times = _round(clients, chosen, compute_s, until_s[chosen] - now_s, policy.deadline_s)
        tally[0, chosen] += 1
        for row, flags in enumerate((times.counted, times.late, times.lost), 1):
            tally[row, chosen] += flags
        busy_s[chosen] += times.busy_s
        idle_s[chosen] += times.end_s - times.busy_s
        down[chosen] += clients.model_bytes * (times.end_s >= clients.down_s[chosen])
        is_estimated = policy.name == "omnifedge" and (number + 1) % ESTIMATE_ROUNDS == 0
        extra_s = _estimate(clients, chosen, busy_s, idle_s, down) if is_estimated else 0.0
        now_s += times.length_s + extra_s
        estimates_s += extra_s
        lengths[number] = now_s - begun_s
        whole = chosen[times.counted]
        updates.append((whole, number, now_s))
        if len(whole):
            ends_s = np.where(times.counted, clients.down_s[chosen] + compute_s + clients.up_s[chosen], -1.0)
            place = int(np.argmax(ends_s))
            last[number], causes[number] = (
                chosen[place],
                straggler_cause(clients, chosen, chosen[place], compute_s[place]),
            )
    counts = np.array([len(whole) for whole, _, _ in updates])
    numbers = np.repeat([number for _, number, _ in updates], counts)
    return RoundLog(
        round_s=lengths, straggler=last, cause=causes, update_client=np.concatenate([row[0] for row in updates]),
        update_round=numbers, update_base=numbers, update_at_s=np.repeat([row[2] for row in updates], counts),
        asked_count=tally[0], counted_count=tally[1], late_count=tally[2], lost_count=tally[3], busy_s=busy_s,
        idle_s=idle_s, down_bytes=down, up_bytes=tally[1] * clients.model_bytes, estimate_s=estimates_s,
    )  # fmt: skip


def _round(
    clients: Clients, chosen: Ints, compute_s: Floats, leaves_s: Floats, deadline_s: float | None
) -> _Round:  # fmt: skip
    """Return who counts in a round and how long each client takes part; all times are from its begin."""
    down_s = clients.down_s[chosen]
    end_s = down_s + compute_s + clients.up_s[chosen]
    lost = end_s > leaves_s
    late = ~lost & (end_s > (np.inf if deadline_s is None else deadline_s))
    counted = ~lost & ~late
    waits_s = np.where(lost, leaves_s, end_s) if deadline_s is None else np.minimum(leaves_s, deadline_s)
    if deadline_s is None:
        length_s = float(waits_s.max())
    else:  # late clients are known before the deadline, and nobody waits for them
        awaited_s = np.concatenate([end_s[counted], waits_s[lost]])
        length_s = float(awaited_s.max()) if len(awaited_s) else deadline_s
    taken_s = np.where(lost, np.minimum(leaves_s, length_s), length_s)
    busy_s = np.clip(taken_s - down_s, 0.0, compute_s)
    return _Round(counted, late, lost, taken_s, busy_s, length_s)


def _estimate(clients: Clients, chosen: Ints, busy_s: Floats, idle_s: Floats, down: Ints) -> float:
    """Add the cost of m² loss evaluations of per-client models to the columns; return the time that they take.

    Each client receives the models of the others and evaluates all of them on its held-out samples; the losses
    themselves are a few bytes and are not counted.
    """
    others = len(chosen) - 1
    link_s = others * clients.down_s[chosen]
    work_s = len(chosen) * HELD_RATIO * clients.sample_count[chosen] * FORWARD_RATIO * clients.sample_s[chosen]
    length_s = float((link_s + work_s).max())
    busy_s[chosen] += work_s
    idle_s[chosen] += length_s - work_s
    down[chosen] += others * clients.model_bytes
    return length_s
