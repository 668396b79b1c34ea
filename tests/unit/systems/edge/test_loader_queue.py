"""Loader queue: golden epochs, replay against the closed form, head of line, limits and remedies."""

import random
from itertools import pairwise

import pytest

from nearpeak.core.edge.loader_answer import LoaderCase
from nearpeak.errors import SpecError
from nearpeak.systems.edge.loader_plan import plan_loader
from nearpeak.systems.edge.loader_queue import constant_epoch_s, loaded_epoch, replayed_epoch

GOLDEN = [
    (100, 0.030, 0.010, 0, 2, 4.000, 3.000), (100, 0.030, 0.010, 1, 2, 3.010, 2.010),
    (100, 0.030, 0.010, 2, 2, 1.520, 0.520), (100, 0.030, 0.010, 4, 2, 1.030, 0.030),
    (100, 0.030, 0.010, 3, 1, 1.030, 0.030), (1000, 0.012, 0.010, 1, 2, 12.010, 2.010),
]  # fmt: skip


def case(**changes):
    given = {"file_count": 1600, "file_bytes": 27e3, "batch": 16, "compute_s": 0.041, "prep_s": 5.2e-3,
             "read_bytes_per_s": 18e6, "ram_bytes": 20e6}  # fmt: skip
    return LoaderCase(**(given | changes))


@pytest.mark.parametrize(("n", "fetch_s", "compute_s", "workers", "prefetch", "epoch_s", "stall_s"), GOLDEN)
def test_epochs_are_the_golden_ones(n, fetch_s, compute_s, workers, prefetch, epoch_s, stall_s):
    assert constant_epoch_s(n, fetch_s, compute_s, workers) == pytest.approx(epoch_s, abs=1e-9)
    replayed = replayed_epoch([fetch_s] * n, [compute_s] * n, workers, prefetch)
    assert (replayed.epoch_s, replayed.stall_s) == pytest.approx((epoch_s, stall_s), abs=1e-9)


def test_closed_form_equals_replay():
    draw = random.Random(1)
    for _ in range(400):
        n, workers, prefetch = draw.randint(1, 40), draw.randint(0, 7), draw.randint(1, 3)
        fetch_s, compute_s = draw.choice((0.0, 1.0, draw.random())), draw.choice((0.0, 0.25, draw.random()))
        replayed = replayed_epoch([fetch_s] * n, [compute_s] * n, workers, prefetch)
        assert replayed.epoch_s == pytest.approx(constant_epoch_s(n, fetch_s, compute_s, workers), abs=1e-9)


def test_replays_keep_the_laws():
    draw = random.Random(2)
    for _ in range(100):
        n, workers = draw.randint(1, 60), draw.randint(1, 5)
        fetch_s = [draw.expovariate(1.0) for _ in range(n)]
        compute_s = [draw.random() for _ in range(n)]
        replayed = replayed_epoch(fetch_s, compute_s, workers)
        assert replayed.epoch_s == pytest.approx(replayed.stall_s + sum(compute_s))
        assert 0 <= replayed.head_of_line_s <= replayed.stall_s
        assert replayed.epoch_s >= max(sum(fetch_s) / workers, sum(compute_s))
        assert replayed.epoch_s <= sum(fetch_s) + sum(compute_s) + 1e-9
    assert replayed_epoch(fetch_s, compute_s, 1).head_of_line_s == 0


def test_one_slow_item_holds_up_the_others():
    replayed = replayed_epoch([1.0, 0.1, 0.1, 0.1], [0.1] * 4, 2)
    assert (replayed.epoch_s, replayed.stall_s, replayed.head_of_line_s) == pytest.approx((1.4, 1.0, 0.9))


def test_more_workers_never_lengthen_an_epoch():
    for cores in (0, 2):
        for misses in (0.0, 0.4, 1.0):
            loader = case(core_count=cores, is_compute_on_cores=bool(cores))
            epochs = [loaded_epoch(loader, count, misses).epoch_s for count in range(1, 12)]
            assert all(later <= sooner + 1e-9 for sooner, later in pairwise(epochs))


def test_parts_of_a_batch_add_up():
    for workers in (0, 1, 2, 4):
        for loader in (case(), case(core_count=2, is_compute_on_cores=True), case(copy_s=0.01, hand_over_s=1e-3)):
            epoch = loaded_epoch(loader, workers, 0.5)
            assert epoch.compute_s + epoch.copy_s + epoch.prep_s + epoch.storage_s == pytest.approx(epoch.batch_s)
            assert epoch.start_s + epoch.batch_count * epoch.batch_s == pytest.approx(epoch.epoch_s)


def test_first_number_of_workers_that_suffices():
    answer = plan_loader(case(), (0, 1, 2, 4))
    enough = answer.enough_worker_count
    assert loaded_epoch(case(), enough, 1 - answer.hit_ratio).limiter == "compute"
    assert loaded_epoch(case(), enough - 1, 1 - answer.hit_ratio).limiter != "compute"
    slow = plan_loader(case(read_bytes_per_s=2e6), (1, 4))
    assert (slow.enough_worker_count, slow.why_not) == (None, "storage")


@pytest.mark.parametrize("replacement", ["lru", "minio"])
def test_memory_that_frees_an_epoch(replacement):
    loader = case(read_bytes_per_s=2e6, replacement=replacement)
    row = plan_loader(loader, (4,)).rows[0]
    assert 0 < row.enough_ram_bytes < loader.data_bytes
    enough = plan_loader(case(read_bytes_per_s=2e6, replacement=replacement, ram_bytes=row.enough_ram_bytes), (4,))
    less = plan_loader(case(read_bytes_per_s=2e6, replacement=replacement, ram_bytes=0.97 * row.enough_ram_bytes), (4,))
    assert enough.rows[0].later.batch_s <= 1.0011 * 0.041 < less.rows[0].later.batch_s


def test_remedies_are_ranked_and_true():
    answer = plan_loader(case(read_bytes_per_s=2e6), (1, 4))
    gains = [remedy.gain_s for remedy in answer.remedies]
    assert gains == sorted(gains, reverse=True)
    faster = next(remedy for remedy in answer.remedies if remedy.name == "storage twice as fast")
    assert plan_loader(case(read_bytes_per_s=4e6), (4,)).best.later.epoch_s == pytest.approx(faster.epoch_s)


def test_replay_of_recorded_times_keeps_the_mean():
    answer = plan_loader(case(), (0, 4), item_times_s=[1.0] * 9 + [11.0])
    assert answer.replays[0].epoch_s == pytest.approx(answer.rows[0].later.epoch_s, rel=0.2)
    assert answer.replays[1].head_of_line_s > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"file_count": 0}, "file_count"), ({"compute_s": 0.0}, "compute_s"), ({"prep_s": -1.0}, "prep_s"),
     ({"order": "sorted"}, "order"), ({"read_bytes_per_s": float("nan")}, "read_bytes_per_s")],
)  # fmt: skip
def test_impossible_loaders_are_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        case(**changes)
