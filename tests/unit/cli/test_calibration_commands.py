import csv
import json

import numpy as np
import pytest

from nearpeak.cli import application
from nearpeak.errors import SpecError


def run(capsys, *words):
    application()(list(words), standalone_mode=False)
    return capsys.readouterr().out


def test_two_targets_are_explained_by_parts_that_sum_to_the_difference(capsys):
    case = "gemm m=1 n=16384 k=8192 dtype=bf16"
    found = json.loads(run(capsys, "explain", case, "-t", "h100_sxm", "-t", "h200_sxm", "--json"))
    parts = found["parts_s"].values()
    assert sum(two - one for one, two in parts) == pytest.approx(found["difference_s"], rel=1e-9)
    assert set(found["device_figures"]) == {"memory bandwidth"}


def test_words_of_the_second_case_replace_those_of_the_first(capsys):
    case = "gemm m=4096 n=4096 k=4096 dtype=bf16"
    found = json.loads(run(capsys, "explain", case, "m=4097", "-t", "a100_sxm_80gb", "--json"))
    assert [one["m"] for one in found["cases"]] == [4096, 4097]
    assert found["cases"][1]["n"] == 4096


def test_nothing_to_compare_is_refused(capsys):
    with pytest.raises(SpecError, match="nothing to differ from"):
        run(capsys, "explain", "gemm m=1 n=1 k=1 dtype=bf16", "-t", "h100_sxm")


@pytest.mark.parametrize(("first", "said"), [("gemm m='1", "no closing quotation"), (" ", "is empty; give")])
def test_words_that_are_no_case_are_refused(first, said, capsys):
    with pytest.raises(SpecError, match=said):
        run(capsys, "explain", first, "m=2", "-t", "h100_sxm")


def test_a_plan_of_an_unknown_format_is_refused_before_it_is_made(tmp_path, capsys):
    with pytest.raises(SpecError, match="is not one of"):
        run(capsys, "calibrate", "plan", "-t", "h20", "--out", str(tmp_path / "plan.txt"))
    assert capsys.readouterr().out == ""


def test_a_plan_is_a_table_that_fit_takes_back_once_times_are_added(tmp_path, capsys):
    plan, own = tmp_path / "plan.csv", tmp_path / "own.toml"
    found = json.loads(run(capsys, "calibrate", "plan", "-t", "h20", "--out", str(plan), "--json"))
    assert found["error_after"] < found["error_before"]
    with plan.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    for row, point in zip(rows, found["points"], strict=True):
        row["time_us"] = str(point["predicted_s"] * 1e6 * 1.1)
    with plan.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    fitted = json.loads(run(capsys, "calibrate", "fit", "--data", str(plan), "-t", "h20", "--out", str(own)))
    assert fitted["groups"][0]["error_unseen"] < fitted["groups"][0]["error_before"]
    words = ("predict", "gemm", "m=64", "n=4096", "k=4096", "dtype=bf16", "-t", "h20", "--json", "--calibration")
    assert json.loads(run(capsys, *words, str(own)))["calibration"]["row_count"] == 30


def test_an_audit_marks_rows_in_the_table_it_writes(tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = [("gemm", "bf16", 8192, 8192, 8192, time) for time in (1600.0, 200.0)]
    lines = ["op,dtype,m,n,k,time_us", *(",".join(map(str, row)) for row in rows)]
    table.write_text("\n".join(lines) + "\n")
    found = json.loads(run(capsys, "audit", str(table), "-t", "h100_sxm", "--out", str(out), "--json"))
    assert found["counts"] == {"faster_than_bound": 1}
    with out.open() as file:
        assert [row["findings"] for row in csv.DictReader(file)] == ["", "faster_than_bound"]
    assert np.isfinite(found["findings"][0]["expected_s"])
