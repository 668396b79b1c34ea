import numpy as np
import pytest

from nearpeak.predict.energy import energy_columns
from nearpeak.predict.forms.power import FORM, power_calibration

power = pytest.importorskip("benchmarks.accuracy.power")
duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def corpus(tmp_path):
    """Give a table of products whose meter settles with a time constant of 30 us."""
    path, target = tmp_path / "aic_gemm.parquet", power.target_of("b200_sxm")
    draw = np.random.default_rng(0)
    axes = {name: 2 ** draw.integers(4, 14, 400) for name in "mnk"}
    columns = power.CaseColumns(op="gemm", phase="forward", dtypes={"dtype": "bf16"}, axes=axes)
    table = power.case_table({"op": "gemm", "dtype": "bf16", **axes})
    time_s = power.predict_table(table, target).predicted_s
    parts, used = energy_columns(target, columns, time_s)
    idle_w = used.coefficients[0].value * target.power_w
    watts = power.read_w(parts.sum(1) / time_s, idle_w, time_s, 30e-6)
    rows = ", ".join(
        f"({m}, {n}, {k}, {w}, 'nvidia_b200_sxm', 'bfloat16', 'x 1', 0, {i % 4})"
        for i, (m, n, k, w) in enumerate(zip(*axes.values(), watts, strict=True))
    )
    names = "m, n, k, power_w, device, dtype, software, flags, shape_bucket"
    duckdb.sql(f"copy (select * from (values {rows}) t({names})) to '{path}' (format parquet)")
    return path


def test_a_meter_that_had_not_settled_is_told_from_a_board_that_draws_less(corpus):
    (one,) = power._readings(corpus)
    steady = power.power_w(
        power.target_of(one.device), one.columns, power.scalars_of(power_calibration("b200_sxm", "bf16")), one.time_s
    ).sum(1)
    assert np.abs(steady / one.power_w - 1).mean() > 0.1
    idle_w = power_calibration("b200_sxm", "bf16").coefficients[0].value * 1000
    found = power._settling(one, np.arange(400), steady, idle_w, one.sweeps)
    many = {sweep for sweep in found if one.sweeps.count(sweep) > 20}
    assert many
    assert all(15e-6 < found[sweep] < 45e-6 for sweep in many)


def test_the_scalars_that_made_the_readings_are_found_again(corpus):
    (one,) = power._readings(corpus)
    found, settling = power._fitted(one, power_calibration("b200_sxm", "bf16").coefficients[4].value)
    read = power._through(one, np.arange(400), found, settling)
    assert np.abs(read / one.power_w - 1).mean() < 0.03
    assert found.values.shape == (len(FORM.scalars),)
