"""`nearpeak validate`: exit codes, the record, and a command that repeats a failure."""

import dataclasses
import importlib
import json
import shlex
import sys

import pytest

from nearpeak.api import suite_construction
from nearpeak.cli import main
from nearpeak.suites.suite_file import save_text

pytest.importorskip("torch")

SOFTMAX = ("softmax", "rows=4", "columns=16", "dtype=fp32")


def run(monkeypatch, capsys, *words):
    """Exit code and what was printed."""
    monkeypatch.setattr("sys.argv", ["nearpeak", "validate", *words])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


def test_pytorch_is_validated_by_default(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *SOFTMAX, "--json")
    record = json.loads(out)
    assert (code, record["status"], record["implementation"]) == (0, "PASS", "torch_cpu")
    assert [check["check"] for check in record["checks"]] == [f"V{number}" for number in range(13)]


def test_a_wrong_implementation_leaves_with_code_12_and_its_command_repeats_the_record(monkeypatch, capsys, tmp_path):
    (tmp_path / "my_kernels_of_a_test.py").write_text(
        "import torch\n\ndef without_maximum(tensors, **_):\n"
        "    e = torch.exp(100 * tensors['x'])\n    return {'y': e / e.sum(-1, keepdim=True)}\n"
    )
    monkeypatch.chdir(tmp_path)
    words = (*SOFTMAX, "--implementation", "my_kernels_of_a_test:without_maximum", "--seed", "7", "--limit", "90 s")
    code, out, error = run(monkeypatch, capsys, *words, "--json")
    record = json.loads(out)
    assert code == 12
    assert record["status"] == "NUMERIC_FAIL"
    assert "V3 NUMERIC_FAIL" in error
    again = shlex.split(record["command"])
    assert (again[:2], again[-2:]) == (["nearpeak", "validate"], ["--limit", "90 s"])
    assert run(monkeypatch, capsys, *again[2:], "--json")[1] == out


def test_the_share_of_mutants_is_said(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *SOFTMAX, "--mutants", "--json")
    record, score = map(json.loads, out.splitlines())
    assert record["command"].endswith(" --seed 0 --mutants")
    assert code == 0
    assert score["mutation_score"] == 1.0
    assert score["mutants"] > 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--implementation", "nowhere:f"), "No module named 'nowhere'"),
        (("--implementation", "json"), "is not module:function"),
        (("--implementation", "json:nothing"), "no attribute 'nothing'"),
        (("--implementation", "json:lods"), "did you mean loads"),
        (("--implementation", "nowhere.py:f"), "nowhere.py: no such file"),
        (("--implementation", "json:loads", "--runner", "torch_cpu"), "give one of"),
        (("--runner", "torch_cpv"), "did you mean torch_cpu"),
    ],
)
def test_wrong_words_are_refused_in_one_line(monkeypatch, capsys, words, said):
    code, _, error = run(monkeypatch, capsys, *SOFTMAX, *words)
    assert code == 2
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("name", ["nowhere.jsonl", "nowhere.csv", "nowhere.json"])
def test_a_file_that_is_not_there_is_no_operator(monkeypatch, capsys, name):
    code, _, error = run(monkeypatch, capsys, name)
    assert (code, error) == (2, f"nearpeak: {name}: not found\n")


def test_every_case_of_a_table_is_validated(monkeypatch, capsys, tmp_path):
    (tmp_path / "cases.csv").write_text("op,dtype,rows,columns\nsoftmax,fp32,2,8\nsoftmax,fp64,3,4\n")
    code, out, error = run(monkeypatch, capsys, str(tmp_path / "cases.csv"), "--json")
    assert (code, error) == (0, "2 cases: 2 right\n")
    assert [json.loads(line)["case"]["dtype"] for line in out.splitlines()] == ["fp32", "fp64"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("X = 1 / 0\n", "raised ZeroDivisionError: division by zero in wrong_kernels.py, line 1"),
        ("def f(t)\n", "raised SyntaxError: expected ':' (wrong_kernels.py, line 1)"),
        ("import sys\nsys.exit(3)\n", "raised SystemExit: 3 in wrong_kernels.py, line 2"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all' in wrong_kernels.py, line 1"),
    ],
)
@pytest.mark.parametrize("option", ["--implementation", "--runner"])
def test_a_file_that_cannot_be_imported_is_one_line_with_the_place(monkeypatch, capsys, tmp_path, text, said, option):
    (tmp_path / "wrong_kernels.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    named = f"{tmp_path / 'wrong_kernels.py'}:f"
    given = named if option == "--implementation" else f"callable:{named}"
    code, _, error = run(monkeypatch, capsys, *SOFTMAX, option, given)
    assert (code, len(error.splitlines())) == (2, 1)
    assert said in error


def test_a_function_in_a_file_is_named_by_its_path_and_finds_what_lies_beside_it(monkeypatch, capsys, tmp_path):
    (tmp_path / "beside_a_kernel.py").write_text("AXIS = -1\n")
    (tmp_path / "json.py").write_text(
        "import beside_a_kernel\n\ndef rows(x, **_):\n    return x['x'].softmax(beside_a_kernel.AXIS)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = (*SOFTMAX, "--implementation", f"{tmp_path / 'json.py'}:rows")
    code, out, _ = run(monkeypatch, capsys, *words, "--json")
    assert (code, json.loads(out)["status"]) == (0, "PASS")


@pytest.mark.parametrize("option", ["--implementation", "--runner"])
@pytest.mark.parametrize(("ends", "said"), [
    ("sys.exit(0)", "it called sys.exit(0)"), ("os._exit(0)", "it ended its process with exit code 0"),
    ("os.kill(os.getpid(), 11)", "it ended its process with SIGSEGV"),
])  # fmt: skip
def test_a_function_that_ends_its_process_has_crashed(monkeypatch, capsys, tmp_path, option, ends, said):
    (tmp_path / "ending.py").write_text(f"import os, sys\n\ndef f(tensors, **_):\n    {ends}\n")
    named = f"{tmp_path / 'ending.py'}:f"
    words = (*SOFTMAX, option, named if option == "--implementation" else f"callable:{named}")
    code, out, error = run(monkeypatch, capsys, *words, "--json")
    record = json.loads(out)
    assert (code, record["status"], len(error.splitlines())) == (12, "CRASH", 1)
    assert said in error
    assert named in error
    assert shlex.split(record["command"])[:2] == ["nearpeak", "validate"]


def test_what_a_function_prints_does_not_mix_with_the_record(monkeypatch, capsys, tmp_path):
    (tmp_path / "talking.py").write_text("def f(x, **_):\n    print('seen')\n    return x['x'].softmax(-1)\n")
    code, out, error = run(monkeypatch, capsys, *SOFTMAX, "--implementation", f"{tmp_path / 'talking.py'}:f", "--json")
    assert (code, json.loads(out)["status"], "seen" in error) == (0, "PASS", True)


def test_a_skeleton_names_inputs_constants_and_outputs_and_is_python(monkeypatch, capsys):
    code, text, _ = run(monkeypatch, capsys, "layer_norm", "rows=4", "hidden=8", "dtype=bf16", "--skeleton")
    assert code == 0
    assert "# constants: EPSILON = 1e-05" in text
    assert 'weight = tensors["weight"]  # bfloat16 [8]' in text
    compile(text, "skeleton", "exec")
    size = ("m=1000000", "n=1000000", "k=1000000", "dtype=bf16")
    code, text, _ = run(monkeypatch, capsys, "gemm", *size, "--skeleton")  # nothing of it is drawn or computed
    assert (code, "# bfloat16 [1, 1000000, 1000000]" in text) == (0, True)


def test_a_case_of_a_suite_that_cannot_be_checked_is_a_row_and_the_others_are_checked(monkeypatch, capsys, tmp_path):
    lines = ({"op": "softmax", "dtype": dtype, "rows": 2, "columns": 8, "count": 1} for dtype in ("fp8_e4m3", "fp32"))
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    whole = suite_construction.suite([tmp_path / "calls.jsonl"])
    (tmp_path / "suite.jsonl").write_text(save_text(whole), encoding="utf-8")
    code, out, error = run(monkeypatch, capsys, str(tmp_path / "suite.jsonl"), "--json")
    rows = {row["case"]["dtype"]: row for row in map(json.loads, out.splitlines())}
    assert (code, error) == (0, "2 cases: 1 cannot be checked, 1 right\n")
    assert {dtype: row["status"] for dtype, row in rows.items()} == {"fp8_e4m3": "UNSUPPORTED", "fp32": "PASS"}
    assert rows["fp8_e4m3"]["reason"]


@pytest.mark.parametrize(("kernel", "code", "said"), [("softmax", 0, "1 right"), ("twice", 12, "1 wrong")])
def test_a_case_without_elements_fails_no_suite(monkeypatch, capsys, tmp_path, kernel, code, said):
    lines = ({"op": "softmax", "dtype": "fp32", "rows": rows, "columns": 8, "count": 1} for rows in (0, 2))
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "kernels_of_a_suite.py").write_text(
        "import torch\n\ndef softmax(tensors, **_):\n    return {'y': torch.softmax(tensors['x'], -1)}\n\n"
        "def twice(tensors, **_):\n    return {'y': 2 * torch.softmax(tensors['x'], -1)}\n"
    )
    (tmp_path / "suite.jsonl").write_text(
        save_text(suite_construction.suite([tmp_path / "calls.jsonl"])), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    words = ("suite.jsonl", "--implementation", f"kernels_of_a_suite:{kernel}", "--json")
    left, _, error = run(monkeypatch, capsys, *words)
    assert (left, f"1 could not tell a wrong result, {said}" in error) == (code, True)


def test_a_case_without_elements_alone_is_no_failure_either_and_said(monkeypatch, capsys):
    code, out, error = run(monkeypatch, capsys, "gemm", "m=0", "n=8", "k=8", "dtype=fp32", "--json")
    assert (code, json.loads(out)["status"]) == (0, "DEGENERATE_CASE")
    assert error.startswith("could not tell a wrong result: gemm m=0 n=8 k=8 fp32 by torch_cpu: V0 DEGENERATE_CASE: ")


def test_what_fell_back_fails_alone_and_in_a_file(monkeypatch, capsys, tmp_path):
    fell = {"node": "softmax", "target": "aten", "reason": "no code", "chosen": False}
    runner = "nearpeak.measurement.isolated_validation.of_runner"
    made = importlib.import_module("nearpeak.measurement.isolated_validation").of_runner
    monkeypatch.setattr(runner, lambda *given: dataclasses.replace(made(*given), ledger=(fell,)))
    one = ("softmax", "rows=2", "columns=8", "dtype=fp32")
    (tmp_path / "calls.csv").write_text("op,rows,columns,dtype\nsoftmax,2,8,fp32\n", encoding="utf-8")
    for words, said in ((one, "V12 FALLBACK"), ((str(tmp_path / "calls.csv"),), "(of 1 case: 1 fell back)")):
        code, _, error = run(monkeypatch, capsys, *words, "--json")
        assert (code, said in error) == (12, True)


def test_a_case_of_a_suite_that_is_too_large_for_float64_is_a_row(monkeypatch, capsys, tmp_path):
    path = tmp_path / "suite.jsonl"
    sweeps = ["op=gemm dtype=bf16 m=65536 n=65536 k=65536", "op=softmax dtype=fp32 rows=4 columns=8"]
    path.write_text(save_text(suite_construction.suite([], sweeps=sweeps)))
    code, out, error = run(monkeypatch, capsys, str(path), "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    large = [row for row in rows if row["case"].get("m") == 65536]
    assert code == 0
    assert [row["reason"] for row in large] == ["too large for rounds in float64; check a smaller case of its kind"]
    assert "1 cannot be checked" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no case"),
        (("--probes", "beaverpie"), "package 'beaverpie': not known"),
        ((*SOFTMAX, "--probes", "beaverpy"), "leave out cases"),
        (("--probes", "beaverpy", "--skeleton"), "leave out --skeleton"),
        ((*SOFTMAX, "--skeleton", "--runner", "numpy", "--mutants"), "leave out --runner, --mutants"),
    ],
)
def test_neither_cases_nor_a_package_or_both_are_refused(monkeypatch, capsys, words, said):
    code, _, error = run(monkeypatch, capsys, *words)
    assert code == 2
    assert said in error


def test_a_case_that_pytorch_refuses_is_one_line(monkeypatch, capsys):
    code, _, error = run(monkeypatch, capsys, "softmax", "rows=2", "columns=8", "dtype=fp8_e4m3")
    assert (code, len(error.splitlines())) == (1, 1)
    assert "softmax: PyTorch computes no such case" in error


@pytest.mark.parametrize(("words", "code", "said"), [
    ("fft rows=3 n=40 kind=r2c dtype=fp16", 1, "PyTorch computes no such case"),
    ("fft rows=2 n=9 kind=c2r dtype=bf16", 1, "PyTorch computes no such case"),
    ("linalg batch=10 n=5 function=inverse dtype=fp16", 1, "PyTorch computes no such case"),
    ("decomposition batch=6 m=6 n=12 function=pseudo_inverse dtype=bf16", 1, "PyTorch computes no such case"),
    ("decomposition batch=6 m=8 n=4 function=ldl dtype=fp32", 2, "ldl is of square matrices; got m=8 and n=4"),
    ("vector_search queries=2 vectors=9 dim=3 k=40 lists=5 probes=1 scanned=9 metric=ip dtype=fp32", 2,
     "k=40 contradicts vectors=9"),
    ("vector_search queries=2 vectors=90 dim=3 k=40 lists=5 probes=1 scanned=9 metric=ip dtype=fp32", 2,
     "k=40 contradicts scanned=9"),
])  # fmt: skip
def test_formats_that_pytorch_lacks_and_extents_that_contradict_are_one_line(monkeypatch, capsys, words, code, said):
    left, _, error = run(monkeypatch, capsys, *words.split())
    assert (left, len(error.splitlines())) == (code, 1)
    assert said in error
    monkeypatch.setattr("sys.argv", ["nearpeak", "measure", *words.split(), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    row = json.loads(capsys.readouterr().out)
    assert (ended.value.code, row["outcome"]) == (0, "unsupported")
    assert row["note"]


def test_a_function_that_hangs_is_ended_and_the_others_of_the_suite_are_checked(monkeypatch, capsys, tmp_path):
    (tmp_path / "hanging_kernels_of_a_test.py").write_text(
        "import time, torch\n\ndef hangs(tensors, rows, **_):\n    time.sleep(600 if rows == 2 else 0)\n"
        "    return torch.softmax(tensors['x'], -1)\n"
    )
    monkeypatch.chdir(tmp_path)
    text = save_text(suite_construction.suite([], sweeps=["op=softmax dtype=fp32 rows=2,3 columns=16"]))
    (tmp_path / "two.jsonl").write_text(text)
    words = ("two.jsonl", "--implementation", "hanging_kernels_of_a_test.py:hangs", "--limit", "20 s", "--json")
    code, out, err = run(monkeypatch, capsys, *words)
    found = {record["case"]["rows"]: record for record in map(json.loads, out.splitlines())}
    assert (code, found[2]["status"], found[3]["status"]) == (12, "TIMEOUT", "PASS"), err
    assert "it did not end within 20 s" in found[2]["checks"][0]["reason"]
