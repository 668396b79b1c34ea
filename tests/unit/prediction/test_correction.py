import json
from pathlib import Path

import numpy as np
import pytest

import nearpeak
from nearpeak.errors import SpecError
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.calibration.coefficient_file import group_text, groups_of
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.correction_layout import DEPTH, LARGEST_RATIO, LEAF_COUNT, LIMITS, UNIT
from nearpeak.prediction.kernel_model import USUAL, case_columns
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.prediction.residual_correction import (
    columns_of,
    correction_entry,
    correction_of,
    correction_ratio,
    fit_correction,
)
from nearpeak.targets import target_of

SHAPES = [(batch, heads, tokens) for batch in (1, 3, 16, 64) for heads in (8, 32) for tokens in (130, 1024, 8192)]


def attention(batch, heads, tokens):
    return nearpeak.case(
        "attention", batch=batch, heads=heads, kv_heads=8, q=1, kv=tokens, dim=128, v_dim=128,
        dtype="bf16",
    )  # fmt: skip


def drawn(count, seed):
    draw = np.random.default_rng(seed)
    m, n = np.exp2(draw.uniform(3, 13, count)), np.exp2(draw.integers(5, 13, count))
    return {"m": m, "n": n, "time_s": m * n * 1e-12}, 0.12 * (m > 500) - 0.2 * ((n == 64) & (m < 100))


def walked(correction, columns):
    """Return the sum of leaves by plain steps, row by row."""
    splits = np.frombuffer(correction.splits, np.uint8).reshape(-1, DEPTH, 2)
    leaves = np.frombuffer(correction.leaves, np.int8).reshape(-1, LEAF_COUNT)
    found = []
    for row in range(len(columns["m"])):
        values = [np.float32(columns[name][row]) for name in correction.columns]
        asked = [[values[c] > np.float32(correction.edges[c][b]) for c, b in tree] for tree in splits.tolist()]
        places = [sum(yes << (DEPTH - 1 - level) for level, yes in enumerate(tree)) for tree in asked]
        found.append(sum(int(leaves[tree, place]) for tree, place in enumerate(places)))
    return UNIT * np.array(found)


def test_trees_find_steps_and_their_joint_effects_on_rows_that_were_not_fitted():
    columns, rest = drawn(4000, 1)
    found = fit_correction(columns, rest + 0.02 * np.random.default_rng(2).standard_normal(4000), 60)
    unseen, truth = drawn(500, 3)
    assert np.abs(walked(found, unseen) - truth).mean() < 0.02
    assert len(found.leaves) == 60 * LEAF_COUNT


def test_the_same_rows_give_the_same_trees_and_nothing_to_tell_apart_gives_none():
    columns, rest = drawn(300, 4)
    assert fit_correction(columns, rest, 5) == fit_correction(columns, rest, 5)
    alike = fit_correction({"m": np.ones(300)}, rest, 5)
    assert (alike.columns, alike.leaves) == ((), b"")


def test_a_stored_correction_is_the_one_that_was_fitted_and_a_broken_one_is_refused():
    columns, rest = drawn(300, 5)
    found = fit_correction(columns, rest, 8)
    entry = json.loads(json.dumps(correction_entry(found)))
    assert correction_of(entry) == found
    for key, wrong in (("leaves", entry["leaves"][:-5]), ("edges", entry["edges"][:-1]), ("splits", "~~~~~")):
        with pytest.raises(ValueError, match=r"together|reshape|multiple|base85|tree"):
            correction_of(entry | {key: wrong})


def test_compiled_walk_adds_up_the_leaves_that_plain_steps_find_within_the_bounds():
    target, model = target_of("h100_sxm"), KERNEL_MODELS["attention"]
    for shape in SHAPES:
        cases = case_columns(attention(*shape))
        calibration = calibration_for(target, model, cases)
        rows = model.rows(target, cases, coefficients_of(calibration), USUAL)
        known = columns_of(model, target, cases, USUAL, rows)
        columns = {name: np.atleast_1d(known.get(name, 0.0)) for name in calibration.correction.columns} | {"m": [0]}
        ratio = correction_ratio(calibration.correction, model, target, cases, USUAL, rows)
        assert np.log(ratio) == pytest.approx(np.clip(walked(calibration.correction, columns), *LIMITS))
        assert 1 - LARGEST_RATIO - 1e-9 <= ratio[0] <= 1 + LARGEST_RATIO + 1e-9


def test_a_table_gives_what_its_cases_give_one_by_one():
    target, cases = target_of("h100_sxm"), [attention(*shape) for shape in SHAPES]
    found = predict_table(table_of_cases(cases), target)
    alone = [nearpeak.predict(case, target) for case in cases]
    assert found.predicted_s == pytest.approx([one.time_s for one in alone], rel=1e-12)
    assert found.low_s == pytest.approx([one.low_s for one in alone], rel=1e-12)
    assert found.limiter.tolist() == [one.limiter for one in alone]


def test_columns_left_blank_are_the_defaults_that_trees_were_fitted_with():
    blank = {"op": "gemm", "dtype": "bf16", "m": [64, 640], "n": 4096, "k": 512}
    full = blank | {"batch": 1}
    first, second = (nearpeak.predict(one, "h100_sxm").predicted_s for one in (blank, full))
    assert np.array_equal(first, second)


def test_a_file_with_a_broken_correction_is_refused_by_name(tmp_path):
    folder = Path(nearpeak.__file__).parent / "prediction" / "coefficients"
    groups = groups_of(folder / "attention" / "h100_sxm.toml")
    entry = groups["attention.bf16"]
    path = tmp_path / "mine.toml"
    path.write_text(group_text("attention.bf16", entry | {"correction": entry["correction"] | {"leaves": "00000"}}))
    with pytest.raises(SpecError, match=r"calibration mine attention\.bf16: correction: .*fit again"):
        nearpeak.predict(attention(1, 8, 1024), "h100_sxm", calibration=path)
