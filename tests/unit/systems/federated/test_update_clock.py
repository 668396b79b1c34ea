"""Asynchronous and buffered servers against a plain event loop, and their laws."""

import numpy as np
import pytest
from tests.unit.systems.federated.test_round_clock import RESNET_BYTES, golden, unlike

from nearpeak.core.federated.round_rules import policy_of, server_of
from nearpeak.errors import SpecError
from nearpeak.systems.federated.client_columns import clients as columns
from nearpeak.systems.federated.update_clock import update_events


def plain_loop(round_s, count, size):
    """(client, base version, version) of each update where all clients train all the time."""
    ends = dict(enumerate(round_s))
    base, version, gathered, updates = dict.fromkeys(ends, 0), 0, 0, []
    while len(updates) < count:
        client = min(ends, key=ends.get)
        updates.append((client, base[client], version))
        gathered += 1
        if gathered == size:
            version, gathered = version + 1, 0
        base[client] = version
        ends[client] += round_s[client]
    return updates


@pytest.mark.parametrize(("words", "size"), [("async", 1), ("buffered=2", 2), ("buffered=3", 3)])
def test_updates_come_as_a_plain_event_loop_has_them(words, size):
    three = golden()
    log = update_events(three, policy_of("random"), server_of(words), round_count=10, most=3)
    rows = list(zip(log.update_client.tolist(), log.update_base.tolist(), log.update_round.tolist(), strict=True))
    assert rows == plain_loop(three.round_s.tolist(), 30, size)


@pytest.mark.parametrize("words", ["async", "buffered=4"])
@pytest.mark.parametrize("policy", ["random", "fastest", "energy", "deadline=60s"])
def test_energy_and_updates_are_conserved(words, policy):
    many = columns(*unlike(7), model_bytes=RESNET_BYTES)
    log = update_events(many, policy_of(policy), server_of(words), round_count=15, most=8, seed=2)
    assert len(log.update_client) == 15 * 8
    assert log.round_s.sum() == pytest.approx(log.update_at_s[-1])
    assert (np.diff(log.update_at_s) >= 0).all()
    assert (log.staleness >= 0).all()
    assert (log.asked_count == log.counted_count + log.lost_count).all()
    assert (log.busy_s + log.idle_s <= log.total_s * (1 + 1e-12)).all()


def test_a_server_that_does_not_wait_gives_fast_clients_more_updates_and_less_fairness():
    three = golden()
    log = update_events(three, policy_of("random"), server_of("async"), round_count=50, most=3)
    counts = log.counted_count
    assert counts[0] > counts[1] > counts[2] > 0
    rate = 1 / three.round_s
    assert counts / counts.sum() == pytest.approx(rate / rate.sum(), abs=0.02)


def test_what_has_no_asynchronous_form_is_refused():
    with pytest.raises(SpecError, match="needs the updates of all clients at once"):
        update_events(golden(), policy_of("omnifedge"), server_of("async"), round_count=1, most=3)
    with pytest.raises(SpecError, match=r"the fastest client needs 9\.881 s"):
        update_events(golden(), policy_of("deadline=2s"), server_of("async"), round_count=1, most=3)
