import math
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import nearpeak
from nearpeak.core.answers.expected_energy import PARTS
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.models.power import clock_ratio, limited_w
from nearpeak.prediction.power.energy_table import energy_table
from nearpeak.prediction.power.predicted_energy import METER_RATIO
from nearpeak.targets import target_of

LARGE = nearpeak.case("gemm", m=8192, n=8192, k=8192, dtype="bf16")
THIN = nearpeak.case("gemm", m=1, n=8192, k=8192, dtype="bf16")


def limited(watts):
    return target_of("b200_sxm", [f'power.limit="{watts} W"'])


def test_energy_is_power_times_time_and_the_sum_of_its_parts():
    found = nearpeak.predict(LARGE, "b200_sxm")
    assert found.energy_j == pytest.approx(found.power_w * found.time_s)
    assert sum(found.energy.parts_j.values()) == pytest.approx(found.energy_j)
    assert set(found.energy.parts_j) == set(PARTS)
    assert found.energy.low_j < found.energy_j < found.energy.high_j
    assert found.power_w <= target_of("b200_sxm").power_w


def test_large_products_draw_what_the_board_may_a_thin_one_less_and_a_tiny_one_far_less():
    assert nearpeak.predict(LARGE, "b200_sxm").power_w > 950
    assert nearpeak.predict(THIN, "b200_sxm").power_w < 950  # meters read 700 to 920 W of m = 1 beyond the cache
    assert nearpeak.predict(nearpeak.case("gemm", m=16, n=64, k=64, dtype="bf16"), "b200_sxm").power_w < 500


def test_a_device_without_measured_power_says_so_and_is_less_sure():
    own, other = nearpeak.predict(LARGE, "b200_sxm").energy, nearpeak.predict(LARGE, "h100_sxm").energy
    assert (own.distance_count, other.distance_count) == (0, 1)
    assert other.high_j / other.low_j > own.high_j / own.low_j
    assert other.low_j / other.energy_j < own.low_j / own.energy_j


def test_a_lower_limit_slows_products_by_a_part_named_power_and_leaves_memory_alone():
    times = [nearpeak.predict(LARGE, limited(watts)) for watts in (1000, 800, 600)]
    assert times[0].time_s < times[1].time_s < times[2].time_s
    assert times[2].waterfall_s["power"] > times[1].waterfall_s["power"]
    assert all(sum(one.waterfall_s.values()) == pytest.approx(one.time_s, rel=1e-9) for one in times)
    assert nearpeak.predict(LARGE, limited(1000)).time_s == nearpeak.predict(LARGE, "b200_sxm").time_s
    thin = [nearpeak.predict(THIN, target, correction=False).time_s for target in (limited(600), "b200_sxm")]
    assert thin[0] == pytest.approx(thin[1], 0.01)


@pytest.mark.parametrize("device", ["jetson_agx_xavier:10W", "jetson_agx_orin:15W", "jetson_orin_nano:7W"])
def test_a_documented_mode_costs_what_its_clocks_say_and_draws_no_more_than_it_may(device):
    case = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="fp16")
    whole, mode = nearpeak.predict(case, device.partition(":")[0]), nearpeak.predict(case, device)
    assert mode.time_s / mode.bound_s == pytest.approx(whole.time_s / whole.bound_s, rel=0.3)
    tiny = nearpeak.predict(nearpeak.case("sgd", parameters=9, dtype="fp32"), device)
    assert max(one.power_w for one in (mode, tiny)) <= target_of(device).power_w


def test_an_edited_limit_is_paid_for_once():
    free, held = (
        nearpeak.predict(LARGE, "h100_sxm"),
        nearpeak.predict(LARGE, target_of("h100_sxm", ['power.limit="300 W"'])),
    )
    assert held.waterfall_s["clock"] == pytest.approx(free.waterfall_s["clock"], rel=1e-3)
    assert 1.3 < held.time_s / free.time_s < 2.0
    assert held.power_w <= 300


@pytest.mark.parametrize("device", ["b200_sxm", "h100_sxm", "l40s", "rtx_4090", "jetson_agx_xavier:15W"])
def test_no_point_of_an_interval_draws_more_than_the_board_may(device):
    target = target_of(device)
    table = case_table({"op": "gemm", "dtype": "bf16", "m": [1, 64, 8192], "n": 8192, "k": [4096, 512, 8192]})
    for one in (nearpeak.predict(case, target) for case in table.cases()):
        most_w = METER_RATIO * target.power_w
        assert one.energy.high_j <= most_w * one.high_s * (1 + 1e-12)
        assert one.energy.low_j <= most_w * one.low_s
        assert one.energy.low_j <= one.energy.energy_j <= one.energy.high_j
    found = predict_table(table, target)
    drawn = energy_table(table, target, found)
    assert (drawn.energy_high_j <= most_w * found.high_s * (1 + 1e-12)).all()


def test_times_never_fall_with_the_limit_and_stay_from_the_documented_one_on():
    limits = (160, 200, 300, 500, 650, 700, 900, 2000)
    found = [nearpeak.predict(LARGE, target_of("h100_sxm", [f'power.limit="{one} W"'])) for one in limits]
    times = [one.time_s for one in found]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]
    assert all(one.power_w <= min(limit, 700) for one, limit in zip(found, limits, strict=True))
    assert times[-3] == times[-1] == nearpeak.predict(LARGE, "h100_sxm").time_s
    assert "above the 700 W" in found[-1].notes[0]
    assert found[2].notes == ()


def test_a_limit_below_what_a_board_draws_at_rest_is_one_clear_error():
    with pytest.raises(SpecError, match="draws 159 W without any work; 159 W to 700 W is right"):
        nearpeak.predict(LARGE, target_of("h100_sxm", ['power.limit="1 W"']))
    table = case_table({"op": "gemm", "dtype": "bf16", "m": [64, 128], "n": 512, "k": 512})
    with pytest.raises(SpecError, match="without any work"):
        predict_table(table, target_of("h100_sxm", ['power.limit="1 W"']))


@pytest.mark.parametrize("stem", ["h100_sxm", "my_board"])
def test_a_limit_in_a_file_of_the_users_own_counts_as_an_edit_does(stem, tmp_path):
    def board(watts):
        (tmp_path / f"{stem}.toml").write_text(shipped.replace('limit = "700 W"', f'limit = "{watts} W"'))
        return target_of(str(tmp_path / f"{stem}.toml"))

    shipped = (resources.files("nearpeak.targets") / "h100_sxm.toml").read_text(encoding="utf-8")
    assert nearpeak.predict(LARGE, board(300)).time_s > 1.3 * nearpeak.predict(LARGE, board(700)).time_s
    with pytest.raises(SpecError, match="without any work"):
        nearpeak.predict(LARGE, board(1))


def test_what_libraries_add_does_not_follow_the_clock_and_is_summed_once():
    target = target_of("jetson_agx_xavier:15W", ['power.limit="8 W"'])
    image = {"batch": 1, "in_channels": 64, "out_channels": [64, 738], "h": 56, "w": 56}
    table = case_table({"op": "conv", "dtype": "fp32", **image, "kh": 3, "kw": 3, "ph": 1, "pw": 1})
    found = predict_table(table, target)
    for row, one in enumerate(nearpeak.predict(case, target) for case in table.cases()):
        assert one.waterfall_s["library"] != 0
        assert sum(one.waterfall_s.values()) == pytest.approx(one.time_s, rel=1e-9)
        assert found.predicted_s[row] == pytest.approx(one.time_s, rel=1e-9)


def test_a_table_gives_the_same_times_and_energies_as_its_cases():
    target, m = limited(700), [1, 64, 8192]
    table = case_table({"op": "gemm", "dtype": "bf16", "m": m, "n": 8192, "k": 8192})
    found = predict_table(table, target)
    drawn = energy_table(table, target, found)
    for row, one in enumerate(nearpeak.predict(case, target) for case in table.cases()):
        assert found.predicted_s[row] == pytest.approx(one.time_s)
        assert drawn.energy_j[row] == pytest.approx(one.energy_j)
        assert drawn.energy_low_j[row] == pytest.approx(one.energy.low_j, rel=0.02)


def test_energy_of_a_step_is_the_sum_of_its_kernels_idle_power_included():
    calls = tuple(Call(case=c, operator="gemm", phase="forward", call_count=3) for c in (LARGE, THIN))
    found = nearpeak.predict(Workload(name="some", step="forward", calls=calls), "b200_sxm", sustained=False)
    each = [nearpeak.predict(one, "b200_sxm") for one in (LARGE, THIN)]
    assert found.energy.energy_j == pytest.approx(3 * sum(one.energy_j for one in each))
    idle_w = [one.energy.parts_j["idle"] / one.time_s for one in each]
    assert idle_w[0] == pytest.approx(idle_w[1])
    assert found.energy.parts_j["idle"] == pytest.approx(idle_w[0] * found.time_s)
    assert found.energy.power_w == pytest.approx(found.energy.energy_j / found.time_s)


def test_what_the_cache_feeds_is_told_from_what_memory_does():
    drawn = nearpeak.predict(nearpeak.case("gemm", m=512, n=512, k=512, dtype="bf16"), "b200_sxm").energy.parts_j
    assert drawn["cache"] > 0 == drawn["memory"]
    drawn = nearpeak.predict(nearpeak.case("gemm", m=16, n=65536, k=16384, dtype="bf16"), "b200_sxm").energy.parts_j
    assert drawn["memory"] > 0 == drawn["cache"]


def test_a_product_of_one_tile_draws_less_than_one_that_fills_the_board():
    one, many = (nearpeak.predict(nearpeak.case("gemm", m=m, n=m, k=64, dtype="bf16"), "b200_sxm") for m in (64, 4096))
    filled = [found.energy.parts_j["filled"] / found.time_s for found in (one, many)]
    assert 0 < 50 * filled[0] < filled[1]  # the other is cut off at the board's limit


def test_a_partition_draws_dynamic_power_by_its_share_of_multiprocessors():
    whole, part = nearpeak.predict(LARGE, "h100_sxm"), nearpeak.predict(LARGE, "h100_sxm:1g.10gb")
    watts = [one.energy.parts_j["products"] / one.time_s for one in (whole, part)]
    assert watts[1] < 0.35 * watts[0]  # a seventh of what the whole would draw, which its limit more than halves


def test_a_target_that_states_no_power_has_no_energy(tmp_path):
    source = (Path(nearpeak.__file__).parent / "targets/h100_sxm.toml").read_text()
    start = source.index("[power]")
    path = tmp_path / "mine.toml"
    path.write_text(source[:start] + source[source.index('[partition."1g.10gb"]') :])
    target = target_of(str(path))
    found = nearpeak.predict(THIN, target)
    assert (found.energy, found.energy_j, found.power_w) == (None, None, None)
    table = case_table({"op": "gemm", "dtype": "bf16", "m": [1], "n": 8, "k": 8})
    with pytest.raises(NotModelledError, match="power limit"):
        energy_table(table, target, predict_table(table, target))


def test_the_clock_falls_just_far_enough_and_never_rises_with_demand():
    demand = np.array([[200.0, 100.0, 0.0, w, 0.0, 0.0, 100.0] for w in (100.0, 599.0, 601.0, 1200.0)]).T
    ratio = clock_ratio(demand, 1000.0)
    assert ratio[0] == ratio[1] == 1.0
    assert 0.99 < ratio[2] < 1.0
    assert ratio[3] < ratio[2]
    assert sum(limited_w(demand, 1000.0)).max() < 1000.0
    assert math.isclose(sum(limited_w(demand[:, :1], 1000.0))[0], demand[:, 0].sum(), rel_tol=0.01)


def test_one_case_draws_what_its_row_of_a_table_does_to_the_last_bit():
    demand = np.array([[200.0, 100.0, 30.0, w, 1e-3, w / 7, 100.0] for w in np.geomspace(1.0, 3000.0, 50)])
    for limit_w in (200.0, 1000.0):
        columns = limited_w(demand.T, limit_w), clock_ratio(demand.T, limit_w)
        for row, one in enumerate(demand.tolist()):
            assert limited_w(one, limit_w) == [part[row] for part in columns[0]]
            assert clock_ratio(one, limit_w) == columns[1][row]
