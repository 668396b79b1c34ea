import numpy as np
import pytest

from nearpeak.prediction.models.power import KERNEL_MODEL, power_calibration
from nearpeak.prediction.power.predicted_energy import energy_columns

power = pytest.importorskip("benchmarks.accuracy.power")
meters = pytest.importorskip("benchmarks.accuracy.meters")
duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def corpus(tmp_path):
    """Give a table of products whose meter is slow and shows 70 % of the power for m below 512, and is right after."""
    path, target = tmp_path / "aic_gemm.parquet", power.target_of("b200_sxm")
    draw = np.random.default_rng(0)
    axes = {name: 2 ** draw.integers(4, 14, 400) for name in "mnk"}
    columns = power.CaseColumns(op="gemm", phase="forward", dtypes={"dtype": "bf16"}, axes=axes)
    table = power.case_table({"op": "gemm", "dtype": "bf16", **axes})
    time_s = power.predict_table(table, target).predicted_s
    parts, used = energy_columns(target, columns, time_s)
    idle_w = used.coefficients[0].value * target.power_w
    early = axes["m"] < 512
    watts = power.read_w(parts.sum(1) / time_s, idle_w, time_s, np.where(early, 30e-6, 1e-8), np.where(early, 0.7, 1))
    rows = ", ".join(
        f"({m}, {n}, {k}, {w}, 'nvidia_b200_sxm', 'bfloat16', 'x 1', 0, {4 + i % 4})"
        for i, (m, n, k, w) in enumerate(zip(*axes.values(), watts, strict=True))
    )
    names = "m, n, k, power_w, device, dtype, software, flags, shape_bucket"
    duckdb.sql(f"copy (select * from (values {rows}) t({names})) to '{path}' (format parquet)")
    return path


def test_a_meter_that_had_not_settled_is_told_from_a_board_that_draws_less(corpus):
    (one,) = power._readings(corpus)
    coefficients = power.coefficients_of(power_calibration("b200_sxm", "bf16"))
    steady = power.power_w(power.target_of(one.device), one.columns, coefficients, one.time_s).sum(1)
    assert np.abs(steady / one.power_w - 1).mean() > 0.1
    (runs,) = power._runs(one, np.flatnonzero(one.part < 2), coefficients).values()
    assert [(20e-6 < run.settling_s < 45e-6, run.share) for run in runs] == [(True, 0.7), (False, 1.0)]
    assert runs[1].first[0] in (256, 512)
    read = power._through(one, np.flatnonzero(one.part == 3), coefficients, {"x 1": runs})
    assert np.abs(read / one.power_w[one.part == 3] - 1).mean() < 0.03


def test_a_run_begins_halfway_between_the_readings_that_show_the_change():
    places, time_s = [(1, 1, k) for k in range(11)], np.full(4, 1e-5)
    shown = meters.read_w(np.full(4, 900.0), 200.0, time_s, np.array([1e-8, 1e-8, 4e-5, 4e-5]))
    known = np.array([0, 2, 8, 10])
    runs = meters.runs_of(places, known, np.full(4, 900.0), 200.0, time_s, shown)
    assert [run.first for run in runs] == [(1, 1, 0), (1, 1, 5)]


def test_scalars_that_explain_the_readings_are_found_again(corpus):
    (one,) = power._readings(corpus)
    memory = next(c.value for c in power_calibration("b200_sxm", "bf16").coefficients if c.name == "memory_ratio")
    found, runs = power._fitted(one, memory)
    read = power._through(one, np.arange(400), found, runs)
    assert np.abs(read / one.power_w - 1).mean() < 0.05
    assert found.values.shape == (len(KERNEL_MODEL.coefficients),)


def test_buckets_that_the_public_corpus_lacks_are_held_out_and_devices_without_prediction_are_left_out(
    tmp_path, monkeypatch, capsys
):
    rows = "('nvidia_b200_sxm', 2), ('gaudi3', 2), ('acme_one', 3)"
    columns = "device, 512 as m, 4096 as n, 4096 as k, 500.0 as power_w, 'bfloat16' as dtype, 'x 1' as software"
    query = f"select {columns}, 0 as flags, shape_bucket from (values {rows}) t(device, shape_bucket)"
    duckdb.sql(f"copy ({query}) to '{tmp_path / 'aic_gemm.parquet'}' (format parquet)")
    monkeypatch.setattr("sys.argv", ["power", str(tmp_path)])
    power.main()
    told = capsys.readouterr()
    assert told.out.startswith("| b200_sxm bfloat16 x 1 | 1 | ")
    assert "gaudi3 bfloat16: 1 readings left out: gaudi3: no prediction" in told.err
    assert "acme_one bfloat16: 1 readings left out: target 'acme_one': not known" in told.err
