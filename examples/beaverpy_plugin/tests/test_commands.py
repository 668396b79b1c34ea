"""The plug-in from the command line: runner and adapter are found by their entry points alone."""

import json
import sys
import types

import numpy as np
import pytest

from nearpeak.cli import main

pytest.importorskip("torch")
import numpy_package as right
from nearpeak_beaverpy.operators import OPERATORS

SOFTMAX = ("softmax", "rows=4", "columns=16", "dtype=fp32")


def run(monkeypatch, capsys, *words):
    """Exit code and what was printed."""
    monkeypatch.setattr("sys.argv", ["nearpeak", "validate", *words])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


def package(monkeypatch):
    """The public package's place, taken by a right one whose softmax is not."""

    class Softmax(right.Softmax):
        def forward(self, x):
            with np.errstate(all="ignore"):
                e = np.exp(x)
                return e / e.sum(-1, keepdims=True)

    module = types.ModuleType("beaverpy")
    module.__dict__.update({name: getattr(right, name) for name in OPERATORS}, Softmax=Softmax)
    monkeypatch.setitem(sys.modules, "beaverpy", module)


def test_the_questions_put_to_a_package_are_listed_by_the_defect_that_they_show(monkeypatch, capsys):
    package(monkeypatch)
    code, out, error = run(monkeypatch, capsys, "--probes", "beaverpy", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 12
    assert {row["operator"] for row in rows} == {"Softmax"}
    assert "large inputs overflow" in {row["defect"] for row in rows}
    assert f"{len(rows)} of 46 questions are answered wrongly" in error


def test_defects_of_a_package_fit_80_columns(monkeypatch, capsys):
    package(monkeypatch)
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    _, out, _ = run(monkeypatch, capsys, "--probes", "beaverpy")
    assert "Softmax: large inputs overflow" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_package_is_a_runner_and_what_it_lacks_is_said(monkeypatch, capsys):
    package(monkeypatch)
    code, _, error = run(monkeypatch, capsys, *SOFTMAX, "--runner", "beaverpy")
    assert (code, "softmax rows=4 columns=16 fp32 by beaverpy: V4 NUMERIC_FAIL" in error) == (12, True)
    relu = ("elementwise", "elements=64", "function=relu", "dtype=fp32", "--runner", "beaverpy")
    assert run(monkeypatch, capsys, *relu)[0] == 0
    code, _, error = run(monkeypatch, capsys, "reduce", "outputs=1", "reduced=8", "dtype=fp32", "--runner", "beaverpy")
    assert (code, "beaverpy does not run reduce" in error) == (1, True)


def test_a_package_that_is_absent_is_said_before_any_row(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "beaverpy", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    code, out, error = run(monkeypatch, capsys, "numpy_operators", "--runner", "beaverpy")
    assert (code, out) == (3, "")
    assert "beaverpy is not installed" in error


def test_a_package_whose_name_is_mistyped_is_guessed(monkeypatch, capsys):
    code, _, error = run(monkeypatch, capsys, "--probes", "beaverpie")
    assert (code, "did you mean beaverpy" in error) == (2, True)


def test_it_is_measured_in_a_process_of_its_own(monkeypatch, capsys, tmp_path):
    (tmp_path / "beaverpy.py").write_text("from numpy_package import *\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["nearpeak", "measure", *SOFTMAX, "--runner", "beaverpy", "--fresh", "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    row = json.loads(capsys.readouterr().out)
    assert (left.value.code, row["runner"], len(row["samples_s"]) > 0) == (0, "beaverpy", True)
