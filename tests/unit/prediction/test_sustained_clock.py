import numpy as np
import pytest

import nearpeak
from nearpeak.core.work.workload import Call, Workload
from nearpeak.prediction.power.product_energy import expected_energy, share_at, work_and_energy
from nearpeak.prediction.power.sustained_clock import KernelLoad, edit_note, load_of_case, sustained_clock
from nearpeak.targets import target_of

LARGE = nearpeak.case("gemm", m=16384, n=16384, k=8192, dtype="bf16")
COPY = nearpeak.case("copy", elements=2**28, dtype="bf16")


def both(case, target):
    return nearpeak.predict(case, target), nearpeak.predict(case, target, sustained=True)


@pytest.mark.parametrize("name", ["h100_sxm", "b200_sxm", "gb200"])
def test_long_products_lose_clock_where_power_is_scarce_and_say_so(name):
    burst, long = both(LARGE, name)
    assert burst.time_s < long.time_s < 2 * burst.time_s
    assert long.waterfall_s["power"] > burst.waterfall_s.get("power", 0.0)
    assert sum(term.time_s for term in long.terms) == pytest.approx(long.time_s, rel=1e-9)
    assert long.low_s <= long.time_s <= long.high_s
    assert burst.holds_for.startswith("bursts")
    assert long.holds_for.startswith("sustained")


@pytest.mark.parametrize(("name", "low", "high"), [("h100_sxm", 0.68, 0.80), ("b200_sxm", 0.54, 0.66)])
def test_sustained_shares_of_the_rate_are_those_of_products_above_10_ms(name, low, high):
    target = target_of(name)
    share = 2 * 16384 * 16384 * 8192 / both(LARGE, name)[1].time_s / target.flop_per_s("tensor.bf16")
    assert low < share < high, "0.74 and 0.60 by public tables (gpu_facts.md, power sag)"


def test_boards_whose_bursts_are_held_back_as_much_lose_nothing_more():
    burst, long = both(LARGE, "l40s")
    assert burst.time_s == long.time_s
    assert "100%" not in long.holds_for


def test_what_memory_bounds_takes_no_longer():
    burst, long = both(COPY, "b200_sxm")
    assert long.time_s == burst.time_s


def test_a_mix_with_light_kernels_runs_at_a_higher_clock_than_its_heaviest_alone():
    target = target_of("b200_sxm")
    heavy, light = (load_of_case(target, case, nearpeak.predict(case, target)) for case in (LARGE, COPY))
    alone, mixed = sustained_clock(target, [(heavy, 1)]), sustained_clock(target, [(heavy, 1), (light, 20)])
    assert 0.4 < alone < mixed <= 1.0
    assert sustained_clock(target, [(light, 1)]) == 1.0


def test_the_energy_of_a_mix_at_its_clock_is_what_the_limit_leaves():
    target = target_of("h100_sxm")
    load = KernelLoad(clocked_s=1e-3, other_s=0.0, clocked_j=1.2, steady_j=0.05, clock_ratio=1.0)
    clock = sustained_clock(target, [(load, 3)])
    voltage = max(0.65, 0.4 + 0.6 * clock)
    left_w = 700 - 0.13 * 700 - 0.283 * 132
    assert 1.2 * voltage**2 + 0.05 == pytest.approx(left_w * 1e-3 / clock, rel=1e-6)


def test_a_table_of_sustained_cases_gives_what_single_cases_give():
    draw = np.random.default_rng(7)
    m, n, k = (2 ** draw.integers(5, 14, 40) for _ in range(3))
    table = nearpeak.case_table({"op": "gemm", "dtype": "bf16", "m": m, "n": n, "k": k})
    found = nearpeak.predict(table, "b200_sxm", sustained=True)
    for row, case in enumerate(table.cases()):
        one = nearpeak.predict(case, "b200_sxm", sustained=True)
        assert found.predicted_s[row] == pytest.approx(one.time_s, rel=0.02)


def test_steps_are_sustained_unless_bursts_are_asked_for():
    calls = tuple(Call(case=LARGE, operator=f"linear{place}", phase="forward") for place in range(4))
    step = Workload(name="products", step="forward", calls=calls)
    usual, burst, long = (nearpeak.predict(step, "b200_sxm", sustained=how) for how in (None, False, True))
    assert burst.time_s < usual.time_s == long.time_s


def test_work_per_clock_and_clock_give_back_the_share_they_came_from():
    for share in np.linspace(0.1, 0.95, 18):
        work, energy = work_and_energy(share, 0.3e-12, 0.9e-12)
        assert work <= 1.0
        assert share_at(work, 0.3e-12, energy) == pytest.approx(share, rel=2e-3)


def test_the_energy_of_products_is_what_amd_measured():
    left_w = 0.87 * 750 - 0.283 * 304
    energy = expected_energy(target_of("mi300x"), "tensor.bf16", "bf16")
    clock = 1207 / 2100
    drawn = clock * max(0.65, 0.4 + 0.6 * clock) ** 2
    assert left_w / (energy * 0.942 * drawn * 304 * 2048 * 2.1e9) == pytest.approx(1.0, rel=0.05)


def test_gains_of_narrower_formats_compare_sustained_times_with_sustained_ones():
    call = Call(case=LARGE, operator="linear", phase="forward")
    step = Workload(name="products", step="forward", calls=(call,))
    found = nearpeak.analyze(step, "b200_sxm").targets[0]
    narrow = nearpeak.case("scaled_gemm", m=16384, n=16384, k=8192, dtype="fp8_row")
    least_s = nearpeak.predict(narrow, "b200_sxm", sustained=True).time_s
    gains = [one for one in found.opportunities if "fp8" in one.title]
    assert gains
    assert all(one.after_s > 0.98 * least_s for one in gains)


def test_a_limit_above_the_documented_one_slows_nothing():
    times_s = [
        nearpeak.predict(LARGE, target_of("h100_sxm", [f'power.limit="{limit_w} W"']), sustained=True).time_s
        for limit_w in (700, 1000, 1400)
    ]
    assert times_s == [times_s[0]] * 3


def test_work_takes_the_same_energy_on_more_or_fewer_multiprocessors():
    energies_j = [
        load_of_case(target, LARGE, nearpeak.predict(LARGE, target)).clocked_j
        for target in (target_of("l4", [f"sm_count={count}"]) for count in (29, 58, 142))
    ]
    assert energies_j == pytest.approx([energies_j[1]] * 3, rel=1e-6)


def test_more_multiprocessors_under_the_same_limit_are_said_with_what_they_draw_at_rest():
    calls = tuple(Call(case=LARGE, operator=f"linear{place}", phase="forward") for place in range(4))
    step = Workload(name="products", step="forward", calls=calls)
    usual, more, powered = (
        nearpeak.predict(step, target_of("l4", edits))
        for edits in ([], ["sm_count=100"], ["sm_count=100", 'power.limit="70 W"'])
    )
    assert more.time_s < 1.35 * usual.time_s, "the limit leaves 34 W for products, not 46 W"
    assert "its 100 multiprocessors share the 72 W of the 58 of l4, and draw 38 W at rest" in more.holds_for
    assert "share" not in usual.holds_for + powered.holds_for


def test_of_a_partition_the_limit_of_the_whole_board_is_not_said():
    assert edit_note(target_of("h100_sxm:1g.10gb", ["sm_count=20"])) == ""
    assert "share the 700 W of the 132 of h100_sxm" in edit_note(target_of("h100_sxm", ["sm_count=150"]))
