"""The commands that set up, test and release: complete, pinned, and strict in continuous integration."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from benchmarks import _figures, quote, run
from house_rules import ROOT
from packaging.requirements import Requirement

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = {
    (pin := Requirement(line)).name: pin
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
}


def test_every_command_of_the_house_exists():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert {"demo", "test", "test-device", "check", "bench", "docs", "clean"} <= targets
    assert "export PIP_CONSTRAINT" in text
    ci = ROOT / ".ci" / "run"
    assert os.access(ci, os.X_OK)
    assert ci.read_text(encoding="utf-8").rstrip().endswith("make test")


def test_every_dependency_is_pinned_within_what_the_package_declares():
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    for declared in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if declared.name != "nearpeak":
            tested = next(iter(PINS[declared.name].specifier)).version
            assert declared.specifier.contains(tested), f"{declared} does not admit the tested {tested}"


def test_torch_is_exact_and_torchvision_absent():
    assert str(PINS["torch"].specifier) == "==2.13.0"
    assert "torchvision" not in PINS
    assert "torch>=2.6,<2.14" in PROJECT["optional-dependencies"]["torch"]


def test_light_core_needs_no_framework():
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert names & {"torch", "onnx", "transformers", "duckdb"} == set()


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_web_test_may_be_skipped_at_home_and_fails_in_continuous_integration(tmp_path, ci, code):
    web = tmp_path / "tests" / "web"
    web.mkdir(parents=True)
    for name in ("conftest.py", "folding.py", "shared_captures.py", "slow.txt"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (web / "test_page.py").write_text("import pytest\ndef test_a_page(): pytest.skip('no browser')\n")
    (web / "test_other.py").write_text("import pytest\npytest.skip('no browser', allow_module_level=True)\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, check=False)
    assert done.returncode in ((1, 2) if code else (0,)), done.stdout.decode()


def test_cases_run_as_one_test_all_of_them_and_those_that_fail_are_named(tmp_path):
    for name in ("conftest.py", "folding.py", "shared_captures.py", "slow.txt"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (tmp_path / "tests" / "test_numbers.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', [*range(9), pytest.param(9, marks=pytest.mark.xfail), *range(10, 20)])\n"
        "def test_few(n):\n"
        "    if n == 12: raise SystemExit(1)\n"
        "    assert n not in (3, 9), 'one of three'\n\n"
        "@pytest.mark.parametrize('n', range(9))\n"
        "def test_some(n):\n    if n == 7: pytest.skip('not a seventh')\n\n"
        "@pytest.fixture\ndef names(request): return [n for i in request.session.items for n in i.fixturenames]\n\n"
        "def test_fixture(names): assert names\n"
    )
    (tmp_path / "tests" / "web").mkdir()
    (tmp_path / "tests" / "web" / "test_pages.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('n', range(9))\n"
        "def test_page(n):\n    if n == 5: pytest.skip('no browser')\n"
    )
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "-rA", "tests"]
    env = {**os.environ, "CI": "true"}
    said, again = (
        subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False).stdout
        for words in (command, [*command, "--last-failed"])
    )
    assert "2 of 19 cases failed" in said
    assert "--- [3]" in said
    assert "--- [12]" in said
    assert "skipped 1 of 9 cases: not a seventh" in said
    assert "test_page[5]: skipped, but in continuous integration it must run: no browser" in said
    assert "2 failed, 2 passed, 1 xfailed" in said
    assert "2 failed" in again
    assert "passed" not in again


def test_every_benchmark_declares_the_figures_that_it_measures():
    for name in run.benchmark_names():
        source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert re.search(r"^FIGURES = \(", source, re.MULTILINE), f"{name} has no FIGURES"
        assert re.search(r"^def measure\(", source, re.MULTILINE), f"{name} has no measure()"


def test_figures_are_kept_with_machine_and_commit_and_measured_once(tmp_path, monkeypatch):
    for module in (run, _figures):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    measured = []

    class Benchmark:
        FIGURES = ("start",)

        @staticmethod
        def measure():
            measured.append(1)
            yield _figures.Figure(name="start", value=0.25, unit="s", bar="<= 0.3 s", passed=True)

    monkeypatch.setattr(run, "_module", lambda _: Benchmark)
    assert run.run_file("start_up", "abc", again=False)
    assert run.run_file("start_up", "abc", again=False)
    assert run.run_file("start_up", "abc+edits", again=False)
    assert len(measured) == 2
    record = _figures.stored()["start"]
    assert re.fullmatch(r"\d+-core .+ machine.*", record["machine"])
    assert record["commit"] == "abc+edits"


def test_quotes_are_replaced_by_measured_figures():
    text = "starts in <!--figure:start-->9 s<!--/figure-->, <!--figure:lost-->1<!--/figure-->"
    figures = {"start": "0.25 s"}
    assert len(quote.misquotes(text, figures)) == 2
    assert quote.quoted(text, figures).startswith("starts in <!--figure:start-->0.25 s<!--/figure-->")
