import json
import re
import warnings

import numpy as np
import pytest

from nearpeak.bounds.contradictory_rows import contradictions
from nearpeak.cli import application
from nearpeak.cli.shared.case_arguments import cases_of
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.frontends.files.sweep import capture_sweep
from nearpeak.ops import case
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.ops.shared.tables.usable_rows import usable_table
from nearpeak.prediction.calibration.device_fit import calibrate_each
from nearpeak.prediction.calibration.samples import samples_of, without
from nearpeak.prediction.calibration.table_audit import audit
from nearpeak.prediction.case_prediction import predict_case, predict_table
from nearpeak.prediction.partial_tables import answered_predictions
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
MIXED = {
    "op": ["gemm", "gemm", "gemm", "gemm", "gemmm", "elementwise"],
    "dtype": ["bf16", "bf61", "bf16", "bf16", "bf16", "bf16"],
    "m": ["64", "64", "", "x", "64", ""],
    "n": ["64", "64", "64", "64", "64", ""],
    "k": ["64", "64", "64", "64", "64", ""],
    "elements": ["", "", "", "", "", "1024"],
    "function": ["", "", "", "", "", "relu"],
}


MIXED_LINE = {"op": "elementwise", "dtype": "bf16", "elements": 1024, "function": "relu"}


def test_usable_rows_are_kept_and_each_bad_one_is_named_by_column_and_reason():
    found = usable_table(MIXED)
    assert found.rows.tolist() == [0, 5]
    assert {row: column for row, (column, _) in found.refused.items()} == {1: "dtype", 2: "", 3: "m", 4: "op"}
    assert "missing" in found.refused[2][1]
    assert "x is not a whole number" in found.refused[3][1]


@pytest.mark.parametrize("blank", ["", " ", None, float("nan")])
def test_a_blank_operator_is_called_blank_wherever_a_table_is_read(blank, tmp_path):
    said = "is blank; name the operator, e.g. gemm ('nearpeak show ops' lists all)"
    found = usable_table({"op": ["gemm", blank], "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8})
    assert found.refused == {1: ("op", said)}
    with pytest.raises(SpecError, match=re.escape(f"table: row 1, column 'op': {said}")):
        usable_table({"op": [blank], "dtype": "bf16", "m": [1], "n": 4, "k": 8})
    with pytest.raises(SpecError, match=re.escape(f"none of its 2 rows is a case; row 1, column 'op': {said}")):
        usable_table({"op": [blank, blank], "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8})
    (tmp_path / "a.csv").write_text("op,m,n,k,dtype\ngemm,4,4,4,fp32\n,8,8,8,fp32\n")
    with pytest.raises(SpecError, match=re.escape(f"a.csv: row 2: op {said}")):
        cases_of([str(tmp_path / "a.csv")], "measure")
    (tmp_path / "a.jsonl").write_text('{"op": " ", "m": 4}\n')
    with pytest.raises(SpecError, match="'op' is blank; write"):
        capture_sweep(tmp_path / "a.jsonl")


def test_a_table_without_one_usable_row_and_a_misspelt_column_are_refused():
    with pytest.raises(NearpeakError, match="bf61"):
        usable_table({"op": ["gemm"] * 2, "dtype": "bf61", "m": [1, 2], "n": 4, "k": 8})
    with pytest.raises(SpecError, match="bias_elements"):
        usable_table({"op": ["gemm"] * 2, "dtype": "bf16", "m": 1, "n": 4, "k": 8, "bias_element": [1, 2]})
    with pytest.raises(SpecError, match="differ in length"):
        usable_table({"op": ["gemm"] * 2, "dtype": "bf16", "m": [1, 2, 3], "n": 4, "k": 8})


def test_a_column_that_no_operator_takes_is_named_where_an_axis_is_missing(tmp_path):
    said = "axis 'm' is missing; give m=EXTENT; columns that gemm does not take: 'mm' (did you mean 'm'?), 'note'"
    rows = [{"op": "gemm", "dtype": "bf16", "note": "first", "mm": 4, "n": 8, "k": 8}, MIXED_LINE]
    found = usable_table({name: [row.get(name) for row in rows] for name in {**rows[0], **rows[1]}})
    assert (found.rows.tolist(), found.refused) == ([1], {0: ("", f"gemm: {said}")})
    with pytest.raises(SpecError, match=re.escape(f"row 1: gemm: {said}")):
        cases_of([str(written(tmp_path / "a.jsonl", rows))], "measure")
    many = {"op": ["gemm"], "dtype": "bf16", "n": 8, "k": 8} | dict.fromkeys("uvwxyz", 1)
    with pytest.raises(SpecError, match=re.escape("does not take: 'u', 'v', 'w', 'x' and 2 more")):
        usable_table(many)


def test_few_bad_rows_among_many_do_not_slow_the_others_down():
    m = np.arange(1, 20_001).astype(object)
    m[[7, 12_000]] = "?"
    found = usable_table({"op": "gemm", "dtype": "bf16", "m": m, "n": 64, "k": 64})
    assert len(found.rows) == 19_998
    assert sorted(found.refused) == [7, 12_000]


def test_rows_that_nothing_predicts_keep_their_place_and_say_why():
    table = case_table({"op": "gemm", "dtype": ["bf16", "int32", "bf16"], "m": [64, 64, 4096], "n": 64, "k": 64})
    with pytest.raises(NotModelledError):
        predict_table(table, H100)
    found = answered_predictions(table, H100)
    assert list(found.refused) == [1]
    assert np.isnan(found.predictions.predicted_s[1])
    assert found.predictions.limiter[1] is None
    alone = predict_table(case_table({"op": "gemm", "dtype": "bf16", "m": [64, 4096], "n": 64, "k": 64}), H100)
    assert found.predictions.predicted_s[[0, 2]].tolist() == alone.predicted_s.tolist()


def test_measurements_that_cannot_be_used_are_set_aside_by_row_and_column():
    times = [3.0, 3.0, 3.0, 3.0, 3.0, 9.0]
    found = samples_of(MIXED | {"time_us": times})
    assert found.rows.tolist() == [1, 6]
    assert [(one.row, one.column) for one in found.set_aside] == [(2, "dtype"), (3, ""), (4, "m"), (5, "op")]
    found = samples_of(MIXED | {"time_us": [float("nan"), 3.0, 3.0, 3.0, 3.0, 9.0]})
    assert (found.set_aside[0].row, found.set_aside[0].column) == (1, "time_us")
    assert found.rows.tolist() == [6]


def test_units_that_differ_between_rows_are_refused_by_row():
    columns = {"op": "gemm", "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8, "time_us": [1.0, 2.0]}
    with pytest.raises(SpecError, match="row 2, column 'unit': 'ms'"):
        samples_of(columns | {"unit": ["us", "ms"]})
    assert len(samples_of(columns | {"unit": ["us", "us"]}).rows) == 2


def test_an_audit_names_rows_without_a_bound_and_holds_the_others_against_theirs():
    columns = {"op": "gemm", "dtype": ["bf16", "fp64"], "m": 8192, "n": 8192, "k": 8192, "time_ms": [0.1, 1.0]}
    found = audit(columns, samples_of(columns), target_of("gaudi3"))
    assert [(one.row, one.kind) for one in found.findings] == [(1, "faster_than_bound"), (2, "no_bound")]


def test_one_kind_of_case_with_too_few_rows_does_not_keep_others_from_being_fitted():
    m = [1, 16, 128, 512, 2048, 8192] * 5
    n = np.repeat([128, 1024, 4096, 8192, 16384], 6)
    k = [256, 1024, 4096, 16384, 1024, 256] * 5
    columns = {"op": "gemm", "dtype": ["bf16"] * 29 + ["fp16"], "m": m, "n": n, "k": k}
    times = predict_table(case_table(columns), H100).predicted_s * 1.2
    found = calibrate_each(samples_of(columns | {"time_s": times}), H100, "test")
    assert [one.name for one in found.fits] == ["gemm.bf16"]
    assert list(found.refused) == ["gemm.fp16, 1 cases"]


def test_samples_can_be_set_aside_later():
    columns = {"op": "gemm", "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8, "time_us": [1.0, 2.0]}
    found = without(samples_of(columns), {0: "no form"})
    assert found.rows.tolist() == [2]
    assert found.set_aside[0].row == 1


def test_the_command_answers_the_good_rows_and_ends_with_an_error_that_counts_the_others(tmp_path, capsys):
    path, out = tmp_path / "mixed.jsonl", tmp_path / "out.jsonl"
    rows = [dict(zip(MIXED, cells, strict=True)) for cells in zip(*MIXED.values(), strict=True)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(NotModelledError, match="4 of 6 rows"):
        application()(["predict", str(path), "-t", "h100_sxm", "--out", str(out), "--energy"], standalone_mode=False)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(found) == 6
    assert ["refused" in row for row in found] == [False, True, True, True, True, False]
    assert found[0]["power_w"] <= 700
    assert "predicted_s" not in found[1]


def test_a_suite_file_is_predicted_case_by_case(tmp_path, capsys):
    from nearpeak.api.suite_construction import suite
    from nearpeak.suites.suite_file import save_text

    path, out = tmp_path / "suite.jsonl", tmp_path / "out.csv"
    path.write_text(save_text(suite([], sweeps=["op=softmax dtype=bf16 rows=pow2(64,512) columns=4096"])))
    application()(["predict", str(path), "-t", "h100_sxm", "--out", str(out)], standalone_mode=False)
    lines = out.read_text().splitlines()
    assert len(lines) == 5
    assert "digest" in lines[0]
    assert "predicted_s" in lines[0]


DEVICES = {"op": "gemm", "dtype": "bf16", "m": [64, 128, 256], "n": 64, "k": 64, "time_us": [3.0, 4.0, 5.0]}


@pytest.mark.parametrize("column", ["device", "gpu"])
def test_a_table_of_several_devices_is_refused_by_column_and_values(column):
    with pytest.raises(SpecError, match=rf"column '{column}' holds 2 devices \(h100_sxm, a100_pcie\)"):
        samples_of(DEVICES | {column: ["h100_sxm", "a100_pcie", "h100_sxm"]})
    assert samples_of(DEVICES | {column: np.array(["mine", "", "mine"])}).device == (column, "mine")


def test_a_table_of_another_device_than_the_target_is_refused_by_fit_and_audit():
    columns = DEVICES | {"device": "H200 SXM"}
    for refusing in (lambda: calibrate_each(samples_of(columns), H100, "test"),
                     lambda: audit(columns, samples_of(columns), H100)):  # fmt: skip
        with pytest.raises(SpecError, match="column 'device': its rows are of H200 SXM, the target is h100_sxm"):
            refusing()
    for own in ("h100_sxm", "rack 7"):
        columns = DEVICES | {"device": own}
        assert audit(columns, samples_of(columns), H100).row_count == 3
        assert audit(columns, samples_of(columns), target_of("h100_sxm:3g.40gb")).row_count == 3


def test_the_commands_refuse_a_table_of_several_devices(tmp_path):
    path = tmp_path / "two.csv"
    lines = ["op,dtype,m,n,k,time_us,device", "gemm,bf16,64,64,64,3,h100_sxm", "gemm,bf16,64,64,64,3,t4"]
    path.write_text("\n".join(lines))
    for words in (["audit", str(path)], ["calibrate", "fit", "--data", str(path), "--out", str(tmp_path / "o.toml")]):
        with pytest.raises(SpecError, match="holds 2 devices"):
            application()([*words, "-t", "h100_sxm"], standalone_mode=False)
    assert not (tmp_path / "o.toml").exists()


def mixed(place):
    """A table of attention, convolutions and top-k; of each the row at `place` contradicts itself."""
    conv = {"op": "conv", "batch": 8, "in_channels": 64, "out_channels": 64, "w": 28, "h": 28, "kw": 3, "kh": 3}
    heads = {"op": "attention", "batch": 1, "heads": 8, "q": 512, "kv": 512, "dim": 64}
    own = {
        "kv_heads": (heads, 2, 3),
        "groups": (conv, 2, 7),
        "k": ({"op": "topk", "rows": 4, "columns": 4096}, 8, 5000),
    }
    found = []
    for name, (base, good, bad) in own.items():
        found += [base | {"dtype": "bf16", name: bad if i == place else good, "time_us": 50.0 + i} for i in range(3)]
    return found


def written(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("command", [["predict"], ["bound", "--cases"]])
def test_a_row_that_contradicts_itself_keeps_its_place_and_the_others_are_answered(place, command, tmp_path):
    path, out = written(tmp_path / "in.jsonl", mixed(place)), tmp_path / "out.jsonl"
    with pytest.raises(NotModelledError, match="3 of 9 rows are refused, the others answered"):
        application()([*command, str(path), "-t", "h100_sxm", "--out", str(out)], standalone_mode=False)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [i for i, row in enumerate(found) if "refused" in row] == [place, place + 3, place + 6]
    assert [i for i, row in enumerate(found) if "bound_s" not in row] == [place, place + 3, place + 6]
    assert "heads=8 contradicts kv_heads=3" in found[place]["refused"]


@pytest.mark.parametrize("place", [0, 2])
def test_a_measurement_of_what_contradicts_itself_is_set_aside_by_name(place):
    rows = mixed(place)
    columns = {name: [row.get(name, "") for row in rows] for name in {name for row in rows for name in row}}
    found = samples_of(columns)
    assert [one.row for one in found.set_aside] == [place + 1, place + 4, place + 7]
    assert "contradicts" in found.set_aside[0].text
    kinds = {one.row: one.kind for one in audit(columns, found, H100).findings}
    assert {kinds[row] for row in (place + 1, place + 4, place + 7)} == {"set_aside"}
    only = {name: [cells[place]] for name, cells in columns.items() if cells[place] != ""}
    with pytest.raises(SpecError, match="row 1: attention: heads=8 contradicts kv_heads=3"):
        samples_of(only)


def test_rows_without_a_rule_and_rows_that_contradict_themselves_stand_side_by_side():
    columns = {"op": "attention", "dtype": ["bf16", "int32", "bf16"], "batch": 1, "heads": 8, "kv_heads": [3, 2, 2],
               "q": 64, "kv": 64, "dim": 64}  # fmt: skip
    found = answered_predictions(case_table(columns), H100)
    assert sorted(found.refused) == [0, 1]
    assert found.predictions.predicted_s[2] > 0


def test_few_contradictions_among_many_rows_and_extents_beyond_64_bits_are_found():
    heads = np.full(30_000, 8)
    heads[[5, 20_001]] = 7
    columns = {"op": "attention", "dtype": "bf16", "batch": 1, "heads": heads, "kv_heads": 2, "q": 64, "kv": 64,
               "dim": np.where(np.arange(30_000) == 20_001, 2**60, 64)}  # fmt: skip
    assert list(contradictions(case_table(columns))) == [5, 20_001]


CONV = {"batch": 1, "in_channels": 4, "out_channels": 8, "h": 8, "w": 8, "kh": 3, "kw": 3}


@pytest.mark.parametrize(("op", "axes", "zero", "said"), [
    ("conv", CONV, "sw", "window: sw=0"), ("conv", CONV, "groups", "groups=0"),
    ("collective", {"elements": 1024}, "ranks", "collective: ranks=0"),
])  # fmt: skip
def test_extents_of_0_are_refused_without_a_warning_of_what_divides_by_them(op, axes, zero, said):
    first = next(iter(axes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SpecError, match=said):
            predict_case(case(op, **axes, **{zero: 0}, dtype="bf16"), H100)
        for extent in range(1, 60):  # enough for a script of the group
            predict_case(case(op, **{**axes, first: extent}, **{zero: 1 + extent % 2}, dtype="bf16"), H100)
        with pytest.raises(SpecError, match=said):
            predict_case(case(op, **{**axes, first: 61}, **{zero: 0}, dtype="bf16"), H100)
