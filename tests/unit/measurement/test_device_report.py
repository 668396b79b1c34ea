"""The device report on the CPU: the same code as on a GPU, complete, and honest about what it has not."""

import copy
import dataclasses
import json

import pytest
from benchmarks.device import cases, report, sections
from benchmarks.device.__main__ import save
from benchmarks.device.text import to_markdown, to_terminal

import nearpeak
from nearpeak.api.measured_analysis import bound_s
from nearpeak.core.runs.measurement import Measurement, Outcome
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.roofs import cpu_target_text
from nearpeak.ops import OPS
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.model_choice import model_of
from nearpeak.targets import target_of

torch = pytest.importorskip("torch")
ROOFS = {"fp32": 1e15, "fp64": 1e15, "bf16": 1e15, "memory": 1e15, "launch": 1e-9}
OPERATORS = ("gemm", "softmax", "topk")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A report of this CPU beside roofs that no CPU has."""
    folder = tmp_path_factory.mktemp("data")
    targets = folder / "nearpeak" / "targets"
    targets.mkdir(parents=True)
    (targets / "cpu.toml").write_text(cpu_target_text(ROOFS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield report.device_report("torch_cpu", "small", OPERATORS, say=lambda _: None)


def test_the_report_of_a_cpu_is_complete_and_without_faults(found):
    # What speaks against the clock of a loaded machine is no fault of the report.
    faults = [one for one in found["faults"] if not one.startswith("timer: ")]
    assert (found["target"], faults, found["not_run"]) == ("cpu", [], [])
    sections = found["sections"]
    assert {row["roof"] for row in sections["roofs"]} == set(cases.roof_cases("small"))
    for row in sections["roofs"]:
        if row["roof"] != "launch":
            assert row["stated_rate"] == 1e15
            assert 0 < row["bound_ratio"] <= 1.001 * row["attained_ratio"] < 1
    assert sections["bounds"]["below"] == []
    assert len(sections["bounds"]["cases"]) == sections["bounds"]["timed_count"] >= 5
    assert [(row["operator"], row["status"]) for row in sections["operators"]] == [(one, "PASS") for one in OPERATORS]
    assert {row["family"] for row in sections["predictions"]} == {"gemm", "stream"}
    assert all(row["uncovered"] for row in sections["predictions"])  # there are no predictions of CPUs
    assert sections["timer"]["name"] == "perf_counter"
    assert sections["energy"]["sampler_cpu_ratio"] > 0


def test_it_is_written_as_json_and_markdown_and_shown(found, tmp_path):
    files = save(found, tmp_path / "figures", tmp_path / "build")
    assert json.loads(files[0].read_text()) == json.loads(json.dumps(found, allow_nan=False))
    text = files[1].read_text()
    for title in ("Roofs", "Bounds", "Predictions", "Operators", "Timer", "Power and energy"):
        assert f"## {title}" in text
    assert "3 of 3 pass every check" in text
    assert "**" not in to_terminal(found)


def test_faults_stand_at_its_head(found):
    faulty = copy.deepcopy(found)
    faulty["faults"] = ["gemm: below_bound: too fast"]
    faulty["not_run"] = ["conv x"]
    faulty["sections"]["operators"][0] |= {"status": "NUMERIC_FAIL", "note": "wrong"}
    text = to_markdown(faulty)
    assert "**1 fault.**\n- gemm: below_bound: too fast" in text
    assert "2 of 3 operators right; 0 of" in text
    assert "Time was up before 1 case: conv x." in text
    assert "NUMERIC_FAIL | wrong" in text


def test_what_raised_or_was_not_to_be_had_is_a_fault_and_what_was_refused_is_none():
    case = nearpeak.case("gemm", m=8, n=8, k=8, dtype="fp32")
    rows = [
        Measurement(case=case, target="cpu", runner="r", samples_s=(), outcome=outcome, note="why")
        for outcome in Outcome
    ]
    named = {said.split(": ")[1] for said in sections.faults(rows, [])}
    assert named == {"suspect_fast", "below_bound", "incorrect", "failed", "crash", "timeout", "oom", "infra"}


def test_a_prediction_for_a_device_whose_clock_fell_is_listed_and_counts_for_no_error():
    case = nearpeak.case("gemm", m=512, n=4096, k=4096, dtype="bf16")
    slow = Measurement(
        case=case, target="h100_sxm", runner="r", samples_s=(1e-4,), outcome=Outcome.THROTTLED, note="hot"
    )
    usual = dataclasses.replace(slow, outcome=Outcome.CONVERGED, samples_s=(3e-5,) * 9, note="")
    (row,) = sections.predictions([slow, usual])
    assert [one["measured_s"] for one in row["cases"]] == [3e-5]
    assert row["uncovered"][0].endswith("throttled: hot")


def test_a_roof_stands_beside_the_datasheet_and_beside_the_bound():
    wanted = cases.roof_cases("full")
    taken = [
        Measurement(case=one, target="h100_sxm", runner="r", samples_s=(1e-2,)) for one in wanted.values()
    ]  # fmt: skip
    rows = {row["roof"]: row for row in sections.roofs(wanted, taken)}
    stated = {name: row["stated_rate"] for name, row in rows.items()}
    assert stated["product bf16"] == 989.4e12  # H100 Tensor Core GPU Architecture whitepaper, as the device file has it
    assert stated["memory read"] == stated["memory read and write"] == 3.35e12  # H100 datasheet
    assert (
        rows["product fp64"]["bound_ratio"] < rows["product fp64"]["attained_ratio"]
    )  # fewer products than usual ones


def test_what_is_measured_is_kept_while_the_rest_is_under_way(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "_timer", lambda *_: None)
    monkeypatch.setattr(report, "KEPT_EVERY_S", 0.0)
    kept = []
    found = report.device_report("torch_cpu", "small", ("softmax",), say=lambda _: None, keep=kept.append)
    counts = [one["sections"]["bounds"]["timed_count"] for one in kept]
    assert counts == sorted(counts)
    assert (kept[0]["finished"], counts[0], found["finished"]) == (False, 1, True)
    folders = (tmp_path / "figures", tmp_path / "build")
    assert [path.parent for path in save(kept[0], *folders)] == [folders[1]] * 2
    assert "Not finished" in to_markdown(kept[0])
    save(found, *folders)
    assert [path.name for path in sorted(tmp_path.rglob("*.*"))] == ["device_report_cpu.md", "cpu.json"]


def test_a_report_that_may_not_lie_in_its_folder_lies_where_it_may(found, tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("in the way of a folder")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    files = save(found, blocked, blocked)
    assert [path.parent for path in files] == [tmp_path] * 2
    assert all(path.stat().st_size > 1000 for path in files)


def test_when_time_is_up_the_rest_is_named(monkeypatch):
    monkeypatch.setattr(report, "_timer", lambda *_: {"call_s": {"10": 1.0, "100": 1.0}, "nothing_s": 0.0,
                                                          "beyond_host_count": 0, "spin_s": {}})  # fmt: skip
    found = report.device_report("torch_cpu", "small", ("gemm",), seconds=0.0, say=lambda _: None)
    assert len(found["not_run"]) == len(cases.roof_cases("small")) + len(cases.family_cases("small")) + 2
    assert {row["status"] for row in found["sections"]["operators"]} == {"NOT_RUN"}


def test_every_case_for_a_gpu_has_a_bound_and_every_family_a_prediction():
    device = target_of("h200_sxm")
    wanted = (*cases.roof_cases("full").values(), *cases.family_cases("full"))
    assert [one.label() for one in wanted if bound_s(one, device) is None] == []
    assert all(predict_case(one, device).time_s > 0 for one in cases.family_cases("full"))
    assert {model_of(one.op, one.phase).name for one in wanted} >= {"gemm", "attention", "conv", "stream"}


def test_every_operator_has_a_case_to_be_checked_with():
    known = list(cases.operator_cases())
    assert [name for name, _, _ in known] == list(OPS)
    assert [(name, why) for name, one, why in known if one is None] == []


def test_convolutions_on_a_gpu_keep_to_fp32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in backends]
    try:
        torch.backends.cudnn.allow_tf32 = True
        assert cuda_device.cuda_or_refusal("torch_cuda") is torch
        assert [one.allow_tf32 for one in backends] == [False, False]
    finally:
        for one, value in zip(backends, before, strict=True):
            one.allow_tf32 = value


def test_a_part_that_fails_is_a_fault_and_the_others_go_on(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(report, "measure", broken)
    monkeypatch.setattr(report, "_timer", lambda *_: None)
    found = report.device_report("torch_cpu", "small", OPERATORS, say=lambda _: None)
    assert any("gemm" in one and "device-side assert" in one for one in found["faults"])
    assert {row["status"] for row in found["sections"]["operators"]} <= {"NOT_RUN"}
    assert "Its clock could not be read" in to_terminal(found)
