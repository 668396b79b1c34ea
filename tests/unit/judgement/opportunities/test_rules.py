"""Rules: each gives evidence and a gain that no gap exceeds, or says what evidence is missing."""

import pytest
from tests.unit.judgement.opportunities.factory import gap, mover, product, timed

from nearpeak.core.answers.gap import ESTIMATED, MEASURED, Alternative
from nearpeak.judgement.opportunities import RULES, ranked


def asked(rule, *gaps):
    advice, missing = RULES[rule](gaps)
    return list(advice), list(missing)


def test_precision_expects_the_same_share_of_the_bound_and_prefers_a_measurement():
    way = Alternative(kind="precision", label="fp8_e4m3", bound_s=64e-6)
    (one,), _ = asked("precision", gap(alternatives=(way,), call_count=3))
    assert one.opportunity.gain_s == pytest.approx(3 * (200e-6 - 100e-6))
    assert one.basis == ESTIMATED
    measured = Alternative(kind="precision", label="fp8_e4m3", bound_s=64e-6, measured_s=120e-6)
    (one,), _ = asked("precision", gap(alternatives=(measured,)))
    assert one.opportunity.gain_s == pytest.approx(80e-6)
    assert one.basis == MEASURED


def test_precision_is_silent_where_the_narrower_one_is_slower_and_abstains_without_a_bound():
    slower = Alternative(kind="precision", label="fp8_e4m3", measured_s=300e-6)
    assert asked("precision", gap(alternatives=(slower,))) == ([], [])
    unknown = Alternative(kind="precision", label="fp4")
    advice, (missing,) = asked("precision", gap(alternatives=(unknown,)))
    assert not advice
    assert "no bound in fp4" in missing.reason


def test_fusion_saves_all_but_the_longest_of_a_module():
    part = [
        gap(mover(op), limiter="dram", module="layers.*.norm", measured_s=time_s, bound_s=1e-6)
        for op, time_s in (("copy", 30e-6), ("elementwise", 20e-6), ("softmax", 10e-6))
    ]
    (one,), _ = asked("fusion", *part)
    assert one.opportunity.gain_s == pytest.approx(30e-6)
    assert "3 kernels" in one.opportunity.evidence


def test_fusion_abstains_without_modules_and_without_neighbours():
    lone = gap(mover(), limiter="dram", module="a", measured_s=1e-5, bound_s=1e-6)
    nameless = gap(mover(), limiter="dram", measured_s=1e-5, bound_s=1e-6)
    advice, missing = asked("fusion", lone, nameless)
    assert not advice
    assert len(missing) == 2


def test_layout_counts_reordering_copies_and_not_conversions():
    kept = gap(mover(), module="a", limiter="dram", bound_s=1e-6, call_count=2)
    cast = gap(mover(to="fp32"), module="a", limiter="dram", bound_s=1e-6)
    (one,), missing = asked("layout", kept, cast)
    assert one.opportunity.gain_s == pytest.approx(400e-6)
    assert missing == []


def test_padding_needs_a_measurement_of_the_padded_one():
    odd = product(n=50257, k=100)
    advice, (missing,) = asked("padding", gap(odd))
    assert not advice
    assert "m=4096 n=50304 k=128" in missing.reason
    way = Alternative(kind="padding", label="gemm n=50304", measured_s=150e-6)
    (one,), _ = asked("padding", gap(odd, alternatives=(way,)))
    assert one.opportunity.gain_s == pytest.approx(50e-6)
    assert asked("padding", gap(product())) == ([], [])


@pytest.mark.parametrize(("m", "k", "parts"), [(128, 16384, 8), (128, 1024, 2), (128, 1000, 0), (4096, 16384, 0)])
def test_split_of_k_is_advised_only_where_multiprocessors_idle_and_k_is_long(m, k, parts):
    advice, _ = asked("split_k", gap(product(m=m, n=2048, k=k), measured_s=200e-6, bound_s=10e-6))
    assert [one.opportunity.title.split(" into ")[1] for one in advice] == ([f"{parts} parts"] if parts else [])


def test_split_of_k_gains_no_more_than_the_gap_and_abstains_without_a_count_of_multiprocessors():
    (one,), _ = asked("split_k", gap(product(m=128, n=128, k=65536)))
    assert one.opportunity.gain_s == pytest.approx(72e-6)
    _, (missing,) = asked("split_k", gap(sm_count=None))
    assert "multiprocessors" in missing.reason


def test_batching_divides_a_measured_larger_batch_by_its_work():
    way = Alternative(kind="batching", label="gemm m=4", measured_s=240e-6, work_ratio=4)
    (one,), _ = asked("batching", gap(alternatives=(way,)))
    assert one.opportunity.gain_s == pytest.approx(200e-6 - 60e-6)
    _, (missing,) = asked("batching", gap(measured_s=3e-6, bound_s=1e-6))
    assert "larger batch" in missing.reason


def test_graph_launch_gains_what_the_host_takes_longer():
    (one,), _ = asked("graph_launch", gap(host_s=210e-6, call_count=5), gap(host_s=100e-6))
    assert one.opportunity.gain_s == pytest.approx(50e-6)
    _, (missing,) = asked("graph_launch", gap(measured_s=3e-6, bound_s=1e-6))
    assert "host time" in missing.reason


def test_small_gains_are_left_out_and_the_largest_advice_stands_first():
    ways = (Alternative(kind="precision", label="fp8_e4m3", measured_s=199.9e-6),)
    big = (Alternative(kind="precision", label="fp8_e4m3", measured_s=50e-6),)
    found = ranked([timed(alternatives=ways), timed(product(k=8192), alternatives=big)])
    assert [one.opportunity.gain_s for one in found.advice] == [pytest.approx(150e-6)]
