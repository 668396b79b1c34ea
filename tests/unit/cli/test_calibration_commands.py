import csv
import json

import numpy as np
import pytest

import nearpeak
from nearpeak.cli import application
from nearpeak.errors import SpecError
from nearpeak.measurement.machine.roofs import cpu_target_text
from nearpeak.prediction import KERNEL_MODELS, case_prediction, provenance
from nearpeak.prediction.calibration import coefficient_store
from nearpeak.reports.part_names import PART_WORDS
from nearpeak.targets import user_folder


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


def test_every_part_of_a_prediction_has_words():
    names = {name for form in KERNEL_MODELS if form != "power" for name in KERNEL_MODELS[form].terms}
    assert {*names, *case_prediction.BEYOND} == set(PART_WORDS)


def test_parts_that_differ_are_said_in_words_and_of_the_same_case_none(capsys, monkeypatch):
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    words = ("explain", "gemm m=4096 n=4096 k=4096 dtype=bf16")
    said = " ".join(run(capsys, *words, "m=4097", "-t", "a100_sxm_80gb").split())
    assert "tile_padding: tiles that reach beyond the edge of the result" in said
    assert "grid_ramp:" not in said
    same = run(capsys, *words, "m=4096", "-t", "a100_sxm_80gb").splitlines()
    assert sum(" alike" in line for line in same) == 1
    assert not any(part in line for part in PART_WORDS for line in same)


def test_a_difference_whose_sign_is_the_corrections_says_so(capsys, monkeypatch):
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    words = ("explain", "gemm m=4096 n=4096 k=4096 dtype=bf16", "m=4097", "-t")
    form = [nearpeak.predict(nearpeak.case("gemm", m=m, n=4096, k=4096, dtype="bf16"), "h100_sxm", correction=False)
            for m in (4096, 4097)]  # fmt: skip
    assert form[0].time_s < form[1].time_s, "what else is there to test"
    turned = run(capsys, *words, "h100_sxm")
    assert "B takes 0.9" in turned
    assert "without the part library B would take 1.0" in turned
    assert "without the part" not in run(capsys, *words, "a100_sxm_80gb")


def test_modes_of_a_device_differ_by_clock_and_power(capsys):
    case = "gemm m=1024 n=1024 k=1024 dtype=fp16"
    found = json.loads(run(capsys, "explain", case, "-t", "jetson_agx_orin", "-t", "jetson_agx_orin:15W", "--json"))
    assert {"clock", "power limit"} <= set(found["device_figures"])


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
    fitted = json.loads(run(capsys, "calibrate", "fit", "--data", str(plan), "-t", "h20", "--out", str(own), "--json"))
    assert fitted["groups"][0]["error_unseen"] < fitted["groups"][0]["error_before"]
    words = ("predict", "gemm", "m=64", "n=4096", "k=4096", "dtype=bf16", "-t", "h20", "--json", "--calibration")
    assert json.loads(run(capsys, *words, str(own)))["calibration"]["row_count"] == 30


@pytest.mark.parametrize(("op", "dtype"), [("attention", "bf16"), ("grouped_gemm", "fp8_block")])
def test_attention_and_experts_have_a_plan_too(op, dtype, capsys):
    found = json.loads(run(capsys, "calibrate", "plan", "-t", "b300_sxm", "--op", op, "--dtype", dtype, "--json"))
    assert len(found["points"]) == 30
    assert found["error_after"] < 0.5 * found["error_before"]


@pytest.mark.parametrize(("option", "name"), [("--op", "gem"), ("--dtype", "bf61")])
def test_a_plan_for_what_nobody_knows_is_refused_by_name(option, name, capsys):
    with pytest.raises(SpecError, match=f"'{name}': not known"):
        run(capsys, "calibrate", "plan", "-t", "h20", option, name)


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


def test_an_audit_does_not_replace_a_column_of_the_table(tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("op,dtype,m,n,k,time_us,findings\ngemm,bf16,8192,8192,8192,1600,mine\n")
    with pytest.raises(SpecError, match=r"in\.csv: its own column 'findings' would be replaced by --out; rename it"):
        run(capsys, "audit", str(table), "-t", "h100_sxm", "--out", str(out))
    assert not out.exists()
    assert json.loads(run(capsys, "audit", str(table), "-t", "h100_sxm", "--json"))["counts"] == {}


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A user folder of its own; what was read of another, or before a fit, is forgotten."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    forget()


def forget():
    read, kept = (
        (coefficient_store._stored, coefficient_store._groups),
        (provenance._shared, case_prediction._shipped_prediction),
    )
    for cached in (*read, *kept):
        cached.cache_clear()


def test_coefficients_of_another_device_are_refused_and_own_ones_hold_under_edits(own_folder, capsys):
    tmp_path = own_folder
    rows = [(m, n, k) for m in (1, 64, 1024, 8192) for n in (512, 8192) for k in (512, 4096)]
    lines = [f"gemm,bf16,{m},{n},{k},{5 + m * n * k / 1e8}" for m, n, k in rows]
    (tmp_path / "in.csv").write_text("\n".join(["op,dtype,m,n,k,time_us", *lines]) + "\n")
    run(capsys, "calibrate", "fit", "--data", str(tmp_path / "in.csv"), "-t", "rtx_5090")
    own = next(tmp_path.rglob("rtx_5090.toml"))
    forget()
    words = ("predict", "gemm", "m=64", "n=4096", "k=4096", "dtype=bf16", "--json")
    with pytest.raises(SpecError, match="was fitted on rtx_5090, not on h100_sxm"):
        run(capsys, *words, "-t", "h100_sxm", "--calibration", str(own))
    assert json.loads(run(capsys, *words, "-t", "rtx_5090", "--calibration", str(own)))["predicted_s"] > 0
    edited = json.loads(run(capsys, *words, "-t", "rtx_5090", "--set", 'dram.bandwidth="2 TB/s"'))
    assert edited["calibration"]["source"].startswith("in.csv")
    assert edited["distance_count"] == 1


def test_coefficients_in_the_user_folder_under_the_name_of_another_device_are_refused(own_folder, capsys):
    fitted(own_folder, capsys, "h200_sxm")
    own = next(own_folder.rglob("h200_sxm.toml"))
    own.rename(own.with_name("a100_sxm_80gb.toml"))
    forget()
    with pytest.raises(SpecError, match=r"a100_sxm_80gb gemm\.bf16: was fitted on h200_sxm, not on a100_sxm_80gb"):
        predicted(capsys, "gemm", "a100_sxm_80gb")


def fitted(folder, capsys, target):
    """Fit products in bf16 to a table in which they take several times as long as on a whole device."""
    rows = [(m, n, k) for m in (1, 64, 1024, 8192) for n in (512, 8192) for k in (512, 4096)]
    lines = [f"gemm,bf16,{m},{n},{k},{15 + n * k / 1.8e5 + 3 * m * n * k / 1e8}" for m, n, k in rows]
    (folder / "in.csv").write_text("\n".join(["op,dtype,m,n,k,time_us", *lines]) + "\n")
    run(capsys, "calibrate", "fit", "--data", str(folder / "in.csv"), "-t", target)
    forget()


def predicted(capsys, op, target, *words):
    axes = {"gemm": ("m=4096", "n=4096", "k=4096"), "softmax": ("rows=64", "columns=4096")}[op]
    text = run(capsys, "predict", op, *axes, "dtype=bf16", "-t", target, "--json", *words)
    return json.loads(text)


def test_what_was_fitted_on_a_part_answers_for_that_part_alone(own_folder, capsys):
    whole = predicted(capsys, "gemm", "h100_sxm")
    fitted(own_folder, capsys, "h100_sxm:1g.10gb")
    part, other = (predicted(capsys, "gemm", f"h100_sxm:{name}") for name in ("1g.10gb", "2g.20gb"))
    assert (part["calibration"]["row_count"], part["distance_count"]) == (16, 0)
    assert predicted(capsys, "gemm", "h100_sxm") == whole
    assert other["calibration"]["row_count"] == whole["calibration"]["row_count"]
    assert other["distance_count"] == 1  # nobody measured that part
    own = next(own_folder.rglob("h100_sxm@1g.10gb.toml"))
    with pytest.raises(SpecError, match=r"was fitted on h100_sxm:1g\.10gb, not on h100_sxm"):
        predicted(capsys, "gemm", "h100_sxm", "--calibration", str(own))


def test_what_a_file_of_coefficients_lacks_is_answered_by_those_that_ship_and_named(own_folder, capsys):
    shipped = predicted(capsys, "softmax", "h20")
    fitted(own_folder, capsys, "h20")
    own = next(own_folder.rglob("h20.toml")).rename(own_folder / "own.toml")
    forget()
    assert predicted(capsys, "gemm", "h20", "--calibration", str(own))["calibration"]["row_count"] == 16
    assert predicted(capsys, "softmax", "h20", "--calibration", str(own)) == shipped
    words = ("predict", "softmax", "rows=64", "columns=4096", "dtype=bf16", "-t", "h20", "--calibration", str(own))
    application()(list(words), standalone_mode=False)
    assert "own.toml lacks stream.softmax: the coefficients that ship" in capsys.readouterr().err
    words = ("predict", "gemm", "m=64", "n=64", "k=64", "dtype=fp8_e4m3", "-t", "h20", "--calibration", str(own))
    application()(list(words), standalone_mode=False)
    assert "own.toml lacks gemm.fp8_e4m3: the coefficients that ship" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["audit", "calibrate fit --data"])
def test_a_table_of_another_device_is_refused_by_its_name(command, tmp_path):
    path = tmp_path / "of_t4.csv"
    path.write_text("op,dtype,m,n,k,device,time_us\ngemm,bf16,64,64,64,t4,5.0\n")
    with pytest.raises(SpecError, match=r"table .*of_t4\.csv: column 'device': its rows are of t4, the target is h20"):
        application()([*command.split(), str(path), "-t", "h20"], standalone_mode=False)


@pytest.mark.parametrize("command", ["fit --data FILE", "plan"])
def test_what_calibrates_a_cpu_is_named(command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = user_folder() / "targets"
    folder.mkdir(parents=True)
    (folder / "cpu.toml").write_text(cpu_target_text({"fp32": 1e11, "fp64": 5e10, "memory": 2e10, "launch": 1e-6}))
    with pytest.raises(SpecError, match="'nearpeak calibrate roofs' measures them"):
        application()(["calibrate", *command.split(), "-t", "cpu"], standalone_mode=False)


def plan_times(capsys, folder, change, unit="time_us", target="h20"):
    """Return what fitting the plan of a device gives: code, output, errors, and whether a file was written."""
    plan, own = folder / "plan.csv", folder / "own.toml"
    points = json.loads(run(capsys, "calibrate", "plan", "-t", target, "--out", str(plan), "--json"))["points"]
    times = change([point["predicted_s"] * 1e6 * 1.1 for point in points])
    head, *lines = plan.read_text().splitlines()
    rows = [f"{line},{time}" for line, time in zip(lines, times, strict=True)]
    plan.write_text("\n".join([f"{head},{unit}", *rows]) + "\n")
    words = ["calibrate", "fit", "--data", str(plan), "-t", target, "--out", str(own), "--json"]
    try:
        application()(words, standalone_mode=False)
    except SpecError as error:
        return None, str(error), own.exists()
    said = capsys.readouterr()
    return json.loads(said.out), said.err, own.exists()


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_rows_in_another_unit_than_the_others_are_set_aside_and_all_are_named(factor, tmp_path, capsys):
    wrong = (3, 8, 12, 20, 27)
    found, said, written = plan_times(
        capsys, tmp_path, lambda times: [t * (factor if i in wrong else 1.0) for i, t in enumerate(times)]
    )
    assert written
    assert [one["row"] for one in found["set_aside"]] == [i + 1 for i in wrong]
    assert {one["column"] for one in found["set_aside"]} == {"time_us"}
    assert "5 rows set aside: row 4: time_us " in said
    assert "(--json names all)" in said
    (group,) = found["groups"]
    assert group["cases"] == 25
    assert group["error_fitted"] < group["error_before"]


@pytest.mark.parametrize(("unit", "said"), [("time_ns", "times shorter"), ("time_s", "times longer")])
def test_a_table_in_another_unit_than_its_column_says_is_refused_and_nothing_written(unit, said, tmp_path, capsys):
    found, error, written = plan_times(capsys, tmp_path, lambda times: times, unit)
    assert (found, written) == (None, False)
    assert f"{said} than expected" in error
    assert f"the unit of {unit}, and whether the device is h20" in error


def test_a_table_of_a_faster_device_is_refused_as_such(tmp_path, capsys):
    found, error, written = plan_times(capsys, tmp_path, lambda times: [t / 12 for t in times])
    assert (found, written) == (None, False)
    assert "below what nothing can beat" in error
    assert "whether the device is h20" in error


def measured_plan(capsys, folder):
    """Write times of a plan: row 5 twice as long, 8 none, 9 in ns; then a slower repeat, and one of another format."""
    plan = folder / "plan.csv"
    points = json.loads(run(capsys, "calibrate", "plan", "-t", "h20", "--out", str(plan), "--json"))["points"]
    factors = {4: 2.2, 7: -1.0, 8: 1100.0}
    with plan.open() as file:
        rows = [row | {"time_us": points[i]["predicted_s"] * 1e6 * factors.get(i, 1.1)}
                for i, row in enumerate(csv.DictReader(file))]  # fmt: skip
    rows += [rows[0] | {"time_us": rows[0]["time_us"] * 1.2}, rows[1] | {"dtype": "fp64"}]
    with plan.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return plan


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_fit_says_at_each_row_what_is_left_or_why_it_was_not_used(suffix, tmp_path, capsys):
    plan, left, own = measured_plan(capsys, tmp_path), tmp_path / f"left.{suffix}", tmp_path / "own.toml"
    words = ("calibrate", "fit", "-t", "h20", "--out", str(own), "--json", "--residuals")
    found = json.loads(run(capsys, *words, str(left), "--data", str(plan), "--json"))
    rows = [json.loads(line) for line in left.read_text().splitlines()] if suffix == "jsonl" else list(
        csv.DictReader(left.open()))  # fmt: skip
    assert len(rows) == 32
    why = {i: row["set_aside"] for i, row in enumerate(rows, start=1) if row.get("set_aside")}
    assert list(why) == [8, 9, 31, 32]
    assert why[31] == "time_us a repeat of row 1, which is no slower"
    assert why[32].startswith("not fitted: calibrate: gemm.fp64: ")
    for i, row in enumerate(rows, start=1):
        assert bool(row.get("fit_group")) != (i in why)
        if i not in why:
            ratio = float(row["predicted_s"]) / float(row["measured_s"]) - 1
            assert float(row["residual_ratio"]) == pytest.approx(ratio)
            assert float(row["measured_s"]) == pytest.approx(float(row["time_us"]) * 1e-6)
    (group,) = found["groups"]
    errors = [abs(float(row["residual_ratio"])) for i, row in enumerate(rows, start=1) if i not in why]
    assert np.mean(errors) == pytest.approx(group["error_fitted"])
    assert group["worst"][0]["row"] == 5
    assert group["worst"][0]["residual_ratio"] == pytest.approx(float(rows[4]["residual_ratio"]))
    again = tmp_path / f"again.{suffix}"
    assert json.loads(run(capsys, *words, str(again), "--data", str(left), "--json")) == found
    assert again.read_text() == left.read_text()


def test_the_rows_that_fit_worst_are_named_within_eighty_columns(tmp_path, capsys, monkeypatch):
    plan = measured_plan(capsys, tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    said = run(capsys, "calibrate", "fit", "-t", "h20", "--out", str(tmp_path / "own.toml"), "--data", str(plan))
    assert max(map(len, said.splitlines())) <= 80
    _, _, worst = said.partition("rows that fit worst")
    assert [line.split()[0] for line in worst.splitlines()[3:]] == ["5", "21", "16"]


def test_host_times_of_a_stack_are_fitted_to_measured_steps(capsys, tmp_path):
    table, own = tmp_path / "steps.csv", tmp_path / "mine.toml"
    table.write_text("model,micro_batch,global_batch,sequence,step_ms\ngpt2,1,4,512,150\n", encoding="utf-8")
    words = ["calibrate", "stack", "--data", str(table), "-t", "h100_sxm", "--stack", "pytorch-eager", "--json"]
    found = json.loads(run(capsys, *words, "--out", str(own), "--json"))
    assert found["after_ratio"] < 0.02 < found["before_ratio"]
    assert not found["fits_micro_batch"]
    again = json.loads(run(capsys, *words[:-2], str(own), "--json"))
    assert again["before_ratio"] == pytest.approx(found["after_ratio"], abs=1e-6)


def test_a_table_without_plans_fits_no_stack(tmp_path):
    table = tmp_path / "steps.csv"
    table.write_text("model,tp\ngpt2,1\n", encoding="utf-8")
    with pytest.raises(SpecError, match="column `model` and one of step_s or step_ms"):
        application()(["calibrate", "stack", "--data", str(table), "-t", "h100_sxm"], standalone_mode=False)
