"""Collectives over gloo among own processes: measured, fitted, written as a fabric and predicted from it."""

import encodings.idna  # noqa: F401  # sockets look names up by it, and another user may not read it
import os
import socket
import threading
import time

import numpy as np
import pytest
from tests.other_user import OTHER, as_other_user

pytest.importorskip("torch")

from nearpeak.base.peer_user import knows_users
from nearpeak.errors import MeasureError, NotModelledError, SpecError
from nearpeak.measurement.machine.gloo_fabric import Sample, fitted_fabric, measure_collectives
from nearpeak.measurement.machine.gloo_ranks import run_ranks
from nearpeak.systems.collectives.group_placement import place_ranks
from nearpeak.systems.collectives.tier_times import collective_time


def place(rank, rank_count):
    return rank, rank_count, os.getpid()


def end(rank, rank_count):
    if rank == 1:
        os._exit(3)
    import torch

    torch.distributed.barrier()


def test_collectives_are_measured_and_predicted_from_their_fits():
    samples = measure_collectives((2,), kinds=("all_reduce", "send"), sizes=(2**10, 2**20), budget_s=0.01)
    assert [(sample.kind, sample.size_bytes) for sample in samples] == [
        ("all_reduce", 2**10), ("all_reduce", 2**20), ("send", 2**10), ("send", 2**20)
    ]  # fmt: skip
    assert all(time_s > 0 for sample in samples for time_s in sample.times_s)
    found = collective_time("all_reduce", 2**20, place_ranks([0, 1], fitted_fabric(samples)))
    assert found.tier == "loopback"
    assert "measured among 2 ranks" in found.parts[0].ground
    with pytest.raises(NotModelledError, match="all_gather was not measured; all_reduce, send were"):
        collective_time("all_gather", 2**20, place_ranks([0, 1], fitted_fabric(samples)))


def test_a_rank_that_ends_early_ends_the_others_in_one_line():
    with pytest.raises(MeasureError, match="rank 1: its process ended without an answer"):
        run_ranks(end, 2, timeout_s=60)


def connect(rank, rank_count):
    """Rank 0 is connected to by another user, who says what a rank says first."""
    import psutil

    if rank:
        return rank
    ports = {one.laddr.port for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    clients = [socket.create_connection(("127.0.0.1", port)) for port in ports]

    def join():
        mine = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        for client in mine:
            client.sendall(bytes(64))
        time.sleep(3)  # while rank 0 looks around
        return len(mine)

    threading.Thread(target=as_other_user, args=(join,), daemon=True).start()
    time.sleep(1)
    return len(clients)


def test_a_rank_that_another_user_is_connected_to_counts_for_nothing():
    if os.geteuid() or not knows_users():
        pytest.skip("only root can act as another user, and this system must say who connects")
    with pytest.raises(MeasureError, match=f"rank 0: MeasureError: user {OTHER} is connected to a port of"):
        run_ranks(connect, 2, timeout_s=60)


@pytest.mark.parametrize("count", [0, 1, 17])
def test_numbers_of_ranks_that_say_nothing_are_refused(count):
    with pytest.raises(SpecError, match="between 2 and 16"):
        run_ranks(place, count)


def test_the_command_writes_a_fabric_that_clusters_are_built_of(tmp_path, capsys, monkeypatch):
    from nearpeak.cli import application
    from nearpeak.measurement.machine import gloo_fabric
    from nearpeak.targets.clusters import cluster_of

    samples = [Sample("all_reduce", 2, size, (1e-4 + size / 1e9,) * 4) for size in (256, 2**20, 2**24)]
    monkeypatch.setattr(gloo_fabric, "measure_collectives", lambda *_, **__: samples)
    out = tmp_path / "mine.toml"
    application()(["calibrate", "fabric", "--ranks", "2", "--out", str(out)], standalone_mode=False)
    assert "all_reduce" in capsys.readouterr().out
    found = collective_time("all_reduce", 2**20, place_ranks([0, 1], cluster_of("2xcpu", str(out)).fabric))
    assert found.time_s == pytest.approx(1e-4 + 2**20 / 1e9, rel=0.02)


def test_fits_find_the_base_and_the_rate_among_delayed_repetitions():
    rng = np.random.default_rng(1)
    samples = [
        Sample(kind, count, 4**power, tuple((1e-4 * count + 4**power / rate) * (1 + rng.exponential(0.3, 40))))
        for kind, count, rate in (("all_reduce", 2, 1e9), ("all_reduce", 4, 4e8), ("send", 2, 3e9))
        for power in range(4, 13)
    ]
    fits = {(fit.kind, fit.rank_count): fit for fit in fitted_fabric(samples).tiers[0].fits}
    assert fits["all_reduce", 2].base_s == pytest.approx(2e-4 * 1.25, rel=0.15)  # the mean of the delays that are kept
    assert fits["all_reduce", 4].bytes_per_s == pytest.approx(4e8 / 1.25, rel=0.15)
    assert all(fit.low_ratio < 1 < fit.high_ratio for fit in fits.values())
    # Three ranks were not measured: steps and bytes of the nearest are scaled.
    fabric = fitted_fabric(samples)
    two, three, four = (collective_time("all_reduce", 2**22, place_ranks(range(n), fabric)).time_s for n in (2, 3, 4))
    assert two < three < four
