import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.accuracy import bars, records
from benchmarks.accuracy.bars_table import BARS, FIGURES, Bar
from benchmarks.accuracy.evidence import Evidence
from benchmarks.accuracy.family import Block
from benchmarks.accuracy.noise import Noise
from benchmarks.accuracy.records import Record

from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

BAR = Bar(text="decode", origin="sites", family="attention", names="decode", value="mean", most=0.09)


def record(name, rows, mean, **others):
    return Record(
        origin="sites", family="attention", name=name, row_count=rows, values={"mean": mean, **others}
    )  # fmt: skip


def noise(mean, apart=0.3):
    return Noise(
        file="aic_decode_attention", device="h100_sxm", dtype="bf16", pair_count=4, size_ratios=(mean, mean, mean),
        by_framework="one 4", alone_ratio=0.5, apart_ratio=apart, apart_p90_ratio=apart,
    )  # fmt: skip


def evidence(*noises):
    found = {(one.file, one.device, one.dtype): one for one in noises}
    return Evidence(corpus=Path(), noises=found, blocks={}, own={("attention", "elsewhere"): 0.07}, seen={})


def unseen_board():
    """Return products of a board that no scalars were fitted on, and what predictions for it say times two."""
    m, ones = np.array([64, 4096, 4096, 4096]), np.ones(4, dtype=np.int64)
    plain = Block(
        source="deepbench", device="v100_sxm", kind="float32", op="gemm", dtypes={"dtype": "fp32"},
        axes={"m": m, "n": 4096 * ones, "k": 1024 * ones}, measured_s=np.ones(4), sites=np.arange(4),
    )  # fmt: skip
    found = predict_table(plain.table(np.arange(4)), target_of("v100_sxm"), plain.setting_of(np.arange(4)))
    return replace(plain, measured_s=2 * found.predicted_s * np.array([3, 1, 1, 1]))


def none(_name):
    return 0.0


GOOD, BAD = record("aiconfigurator h100_sxm decode_attention bf16", 300, 0.05), record("other decode", 100, 0.13)


def test_a_bar_takes_only_the_records_it_is_of():
    others = (
        record("a prefill", 9, 0.5),
        Record(origin="group", family="attention", name="decode", row_count=1, values={}),
    )
    assert [one.record for one in bars.verdict(BAR, (GOOD, *others), none).held] == [GOOD]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ((GOOD,), "met"), ((GOOD, BAD), "mean met"), ((BAD,), "**missed**"), ((), "no data"),
        ((GOOD, record("b decode", 400, 0.13)), "**missed**"),
    ],
)  # fmt: skip
def test_met_is_every_block_and_mean_met_is_the_mean_weighted_by_rows(found, word):
    one = bars.verdict(BAR, found, none)
    assert one.word == word
    assert word in bars.summary_line(one)


def test_a_bar_on_the_mean_alone_is_met_by_the_mean():
    bar = Bar(text="models", origin="sites", value="mean", most=0.09, is_mean=True)
    assert bars.verdict(bar, (GOOD, BAD), none).word == "met"


def test_a_share_may_leave_an_interval_at_either_end_and_the_worst_is_the_farthest_out():
    bar = Bar(text="covered", origin="sites", value="covered", least=0.85, most=0.95)
    found = [record(name, 10, 0.1, covered=value) for name, value in (("a", 0.9), ("b", 0.8), ("c", 0.96))]
    one = bars.verdict(bar, found, none)
    assert [held.is_met for held in one.held] == [True, False, False]
    assert one.worst.record.name == "b"
    assert "85.0 % to 95.0 %" in bars.summary_line(one)


def test_other_boards_are_told_apart_by_one_factor_by_few_rows_and_by_their_source():
    block = unseen_board()
    known = Evidence(
        corpus=Path(), noises={}, blocks={block.name: block}, own={},
        seen={("gemm", "deepbench p100_pcie float32"): 0.31, ("gemm", "deepbench p100_pcie float16"): 0.5},
    )  # fmt: skip
    one = Record(origin=records.KIN, family="gemm", name=block.name, row_count=4, values={})
    assert known.cells(one, "long_mean") == {
        "one factor": "16.7 %", "both sides above 128": "50.0 %",
        "fitted board, same source": "31.0 % (p100_pcie)",
    }  # fmt: skip


def test_noise_takes_the_place_of_a_bar_only_where_it_is_larger_and_allowed():
    noisy = evidence(noise(0.2)).allowed_ratio
    assert noisy(GOOD.name) == pytest.approx(1.2 * 0.2)
    assert noisy(BAD.name) == 0.0
    allowing = Bar(text="decode", origin="sites", names="decode", value="mean", most=0.09, allows_noise=True)
    worse = record(GOOD.name, 10, 0.2)
    assert bars.verdict(allowing, (worse,), noisy).word == "met"
    assert bars.verdict(BAR, (worse,), noisy).word == "**missed**"
    assert bars.verdict(allowing, (GOOD,), evidence(noise(0.01)).allowed_ratio).held[0].most == 0.09


def test_the_page_lists_missed_blocks_with_what_bounds_them():
    known = evidence(noise(0.02))
    missed = record(GOOD.name, 10, 0.2)
    text = bars.page([bars.verdict(BAR, (missed, record("x decode", 500, 0.01)), none)], known)
    assert f"| decode | 9.0 % | 1 of 2 | 1.4 % | 20.0 % ({GOOD.name}) | mean met |" in text
    assert f"| attention | {GOOD.name} | 10 | 20.0 % | 9.0 % | 2.4 % | 30.0 % |" in text
    assert "x decode |" not in text


def test_the_page_lists_every_interval_met_or_not():
    values = {"mean": 0.05, "covered": 0.9, "width": 1.5, "least_width": 2.2}
    group = Record(origin=records.GROUP, family="gemm", name="h100_sxm", row_count=70, values=values)
    text = bars.page([bars.verdict(BAR, (GOOD,), none)], evidence(), [group])
    assert "| gemm | h100_sxm | 70 | 5.0 % | 90.0 % | 1.50 | 2.20 |" in text


def test_what_other_commands_wrote_is_read_as_ratios(tmp_path):
    (tmp_path / "accuracy_unseen.md").write_text(
        "| family | left out | fitted on | rows | all | above 50 us | roofline |\n|---|---|---|---|---|---|---|\n"
        "| gemm | a b200_sxm fp8 | l40s | 20 | 10.0 / 8.0 / 9.0 / -1.0 | – | 40.0 |\n"
    )
    (found,) = records.written(tmp_path)
    assert (found.origin, found.name, found.row_count) == (records.LEFT_OUT, "a b200_sxm fp8", 20)
    assert found.values == pytest.approx({"mean": 0.1, "over_roofline": 0.25})
    assert records.figure("no_such_figure", tmp_path) == {}


def test_every_bar_reads_a_figure_that_some_command_finds():
    known = {
        "mean", "p90", "bias", "over_roofline", "covered", "width", "decided", "beaten", "beaten_classical",
        "below_bound", "weaker", "long_mean", "mean_from_20_us", "long_worst", "as_it_stands",
    }  # fmt: skip
    assert {bar.value for bar in BARS} <= known
    assert len({bar.text for bar in BARS}) == len(BARS)
    assert all(bar.least < bar.most or bar.least == -math.inf for bar in BARS)
    assert all(records.figure(name) for name in FIGURES.values())
