"""`nearpeak validate`: exit codes, the record, and a command that repeats a failure."""

import json
import shlex

import pytest

from nearpeak.cli import main

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
    words = (*SOFTMAX, "--implementation", "my_kernels_of_a_test:without_maximum", "--seed", "7")
    code, out, error = run(monkeypatch, capsys, *words)
    record = json.loads(out)
    assert code == 12
    assert record["status"] == "NUMERIC_FAIL"
    assert "V3 NUMERIC_FAIL" in error
    again = shlex.split(record["command"])
    assert again[:2] == ["nearpeak", "validate"]
    assert run(monkeypatch, capsys, *again[2:])[1] == out


def test_the_share_of_mutants_is_said(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *SOFTMAX, "--mutants")
    score = json.loads(out.splitlines()[1])
    assert code == 0
    assert score["mutation_score"] == 1.0
    assert score["mutants"] > 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--implementation", "nowhere:f"), "No module named 'nowhere'"),
        (("--implementation", "json"), "is not module:function"),
        (("--implementation", "json:nothing"), "no attribute 'nothing'"),
        (("--implementation", "json:loads", "--runner", "torch_cpu"), "give one of"),
        (("--runner", "torch_cpv"), "did you mean torch_cpu"),
    ],
)
def test_wrong_words_are_refused_in_one_line(monkeypatch, capsys, words, said):
    code, _, error = run(monkeypatch, capsys, *SOFTMAX, *words)
    assert code == 2
    assert said in error
    assert len(error.splitlines()) == 1
