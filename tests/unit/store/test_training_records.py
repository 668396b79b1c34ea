"""Training runs in the store: series, channels, attachments, failures, a planted slowdown, and the report of it."""

import random
from dataclasses import replace

import pytest
from tests.unit.measurement.training.matrix_of_sleeps import PLAN, log_of

from nearpeak.api.edge.training_bench import stored_bench
from nearpeak.core.edge.training_matrix import TrainingCell
from nearpeak.core.history.stored_run import Device
from nearpeak.core.runs.energy import Energy
from nearpeak.errors import NotFoundError
from nearpeak.history.regression_groups import regressed
from nearpeak.history.series_tracks import track_of
from nearpeak.reports.systems.training_bench_report import document_of, to_json
from nearpeak.store import open_store
from nearpeak.store.training_records import failed_record, training_record

CELL = next(PLAN.cells())


def energy(domain, energy_j):
    return Energy(
        domain=domain, source="rails", channel=domain, method="integral", energy_j=energy_j,
        parts_j={"sampling": 0.1, "window": 0.2}, covered_s=1.0, window_s=1.0, sample_count=100,
    )  # fmt: skip


def log(number, epoch_s=(1.2, 1.0, 1.0), cell=CELL, **facts):
    made = log_of(cell, f"{number:064x}", epoch_s)
    return replace(made, begun_wall_ns=1_700_000_000_000_000_000 + number * 10**9, facts={"mode": "15W", **facts})


def metered(number):
    made = log(number)
    epochs = [replace(epoch, energies=(energy("board", 9.0), energy("gpu", 4.0))) for epoch in made.epochs]
    return replace(made, epochs=tuple(epochs))


def test_a_run_is_there_once_with_all_that_it_logged(tmp_path):
    record = training_record(metered(1))
    with open_store(tmp_path / "a.db", create=True) as store:
        assert store.ingest(record).new
        assert not store.ingest(training_record(metered(1))).new
        series = {item.metric.name: item for item in store.series()}
        assert set(series) == {"epoch", "first_epoch", "batch", "stall", "energy", "energy_gpu"}
        run = int(store.history(series["epoch"].id).run_ids[0])
        assert store.samples(run, series["epoch"].id).tolist() == [1.0, 1.0]
        assert store.samples(run, series["energy"].id).tolist() == [9.0, 9.0]
        assert store.samples(run, series["batch"].id, channel="forward_s") == pytest.approx([0.2, 0.2])
        assert series["epoch"].label == CELL.label
        assert series["epoch"].testbed.policy["mode"] == "15W"
    answer = stored_bench(str(tmp_path / "a.db"))
    assert answer.rows[0].logs[0].epochs[0].phases_s["wait"] == pytest.approx(0.24)
    assert "board 9 ± 0.3" in str(document_of(answer))
    assert '"energy_j": {"board": [8.7, 9.0, 9.3]' in to_json(answer)


def test_power_modes_and_storage_make_series_and_packages_do_not(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as store:
        for number, facts in enumerate(({}, {"mode": "25W"}, {"storage": "a card"})):
            store.ingest(training_record(log(number, **facts)))
        newer = log(9)
        newer = replace(newer, environment=replace(newer.environment, packages=(("torch", "9"),)))
        store.ingest(training_record(newer))
        assert sorted(item.run_count for item in store.series(metric="epoch")) == [1, 1, 2]
    assert [(row.mode, len(row.logs)) for row in stored_bench(str(tmp_path / "a.db")).rows] == [("15W", 3), ("25W", 1)]


def test_a_quarantined_cell_is_stored_with_its_reason(tmp_path):
    device = Device(name="a processor")
    with open_store(tmp_path / "a.db", create=True) as store:
        store.ingest(failed_record(CELL, "k" * 64, "no luck", device, None))
        history = store.history(store.series()[0].id)
    assert history.outcomes == ("failed",)
    row = stored_bench(str(tmp_path / "a.db")).rows[0]
    assert (row.label, row.failure) == (CELL.label, "every run has failed")


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_slowdown_of_5_percent_is_found_within_10_runs(tmp_path, seed):
    draw, found_after = random.Random(seed), 0
    with open_store(tmp_path / "a.db", create=True) as store:
        for number in range(30):
            level_s = (1.05 if number >= 20 else 1.0) * draw.lognormvariate(0, 0.01)
            epochs_s = (1.3, *(level_s * draw.lognormvariate(0, 0.003) for _ in range(2)))
            store.ingest(training_record(log(number, epochs_s)))
            series = store.series(metric="epoch")[0].id
            if number == 19:
                assert not regressed([track_of(store, series)])
            elif number > 20 and not found_after and regressed([track_of(store, series)]):
                found_after = number - 19
    assert 0 < found_after <= 10


def test_a_store_without_training_runs(tmp_path):
    open_store(tmp_path / "a.db", create=True).close()
    with pytest.raises(NotFoundError, match="no training runs"):
        stored_bench(str(tmp_path / "a.db"))


def test_keys_tell_cells_apart():
    cells = list(PLAN.cells())
    assert len({cell.key("1") for cell in cells}) == len(cells) == 12
    assert len({str(sorted(cell.case().items())) for cell in cells}) == 6
    cell = TrainingCell(model="lenet5", batch=16, worker_count=0, cache="cold", item_count=1)
    assert cell.key("1") != replace(cell, seed=1).key("1")
