import os
import subprocess
import sys

import pytest

import nearpeak
from nearpeak.core.distinct import distinct_rows
from nearpeak.core.workload import Call
from nearpeak.ops import label_of
from nearpeak.predict import _kept_scripts
from nearpeak.predict._case_scripts import Scripts
from nearpeak.predict._form import USUAL
from nearpeak.predict._step_figures import step_figures
from nearpeak.targets import target_of

PATH_OF = _kept_scripts.path_of
HEADS = {"heads": 8, "kv_heads": 8, "dim": 64, "causal": True, "align": "lower_right"}
CASES = (
    nearpeak.case("gemm", m=640, n=1280, k=512, dtype="bf16"),
    nearpeak.case("attention", batch=2, q=640, kv=640, dtype="bf16", **HEADS),
    nearpeak.case("attention", "backward", batch=2, q=640, kv=640, dtype="bf16", **HEADS),
    nearpeak.case("elementwise", elements=6400, a=6400, b=64, function="add", dtype="bf16"),
    nearpeak.case("softmax", rows=640, columns=320, dtype="bf16"),
)
STEP = """
import sys
from pathlib import Path
import nearpeak
from nearpeak.core.workload import Call, Workload
from nearpeak.predict import _kept_scripts
WIDTH = {"softmax": "columns", "rms_norm": "hidden"}
_kept_scripts.folder = lambda: Path(sys.argv[1])
cases = [nearpeak.case(op, **{"rows": int(sys.argv[3]), WIDTH[op]: 64}, dtype="bf16") for op in sys.argv[2].split(",")]
calls = tuple(Call(case=case, operator=case.op, phase="forward") for case in cases)
print(repr(nearpeak.predict(Workload(name="some", step="forward", calls=calls), "h100_sxm")))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give an empty folder in which scripts are kept."""
    monkeypatch.setattr(_kept_scripts, "path_of", PATH_OF)
    monkeypatch.setattr(_kept_scripts, "folder", lambda: tmp_path / "scripts")
    return tmp_path / "scripts"


def figures_of(cases, scripts):
    calls = tuple(Call(case=case, operator=case.op, phase="forward") for case in cases)
    return step_figures(distinct_rows(calls, label_of), scripts)


def first_step(target, cases=CASES):
    """Return the scripts of a process that predicts its first step, and what the step needs of its cases."""
    scripts = Scripts(target, USUAL)
    _kept_scripts.restore(scripts)
    found = figures_of(cases, scripts)
    _kept_scripts.keep(scripts)
    return scripts, repr(found)


def written_count(scripts):
    """Return how many cases the formulas answered for."""
    return sum(group.formula_count for group in scripts.step_groups.values())


@pytest.mark.parametrize("name", ["h100_sxm", "b200_sxm", "mi300x"])
def test_later_processes_have_the_scripts_and_give_the_same_figures(name, folder):
    target = target_of(name)
    first, wanted = first_step(target)
    assert written_count(first) == len(CASES)
    later, found = first_step(target)
    assert found == wanted
    assert written_count(later) == 0


def test_a_damaged_file_gives_nothing_and_is_written_anew(folder):
    target = target_of("h100_sxm")
    _, wanted = first_step(target)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole[:100] + b"?!" + whole[102:], whole + b"?"):
        path.write_bytes(damaged)
        again, found = first_step(target)
        assert (written_count(again), found) == (len(CASES), wanted)
        assert written_count(first_step(target)[0]) == 0


def test_what_two_processes_have_kept_one_after_the_other_is_all_there(folder):
    target = target_of("h100_sxm")
    both = [Scripts(target, USUAL) for _ in range(2)]
    for scripts, case in zip(both, CASES, strict=False):
        _kept_scripts.restore(scripts)
        figures_of([case], scripts)
    for scripts in both:
        _kept_scripts.keep(scripts)
    assert written_count(first_step(target, CASES[:2])[0]) == 0


def test_two_processes_at_once_leave_a_whole_file(folder):
    def started(ops):
        command = [sys.executable, "-c", STEP, str(folder), ops, "512"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    ops = "softmax,rms_norm"
    found = {process.communicate()[0] for process in [started(ops), started(ops)]}
    assert len(found) == 1
    assert [path.suffix for path in folder.iterdir()] == [".scripts"]
    scripts = Scripts(target_of("h100_sxm"), USUAL)
    _kept_scripts.restore(scripts)
    assert {kind.op for kind in scripts.step_groups} == {"softmax", "rms_norm"}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing keeps this user from writing")
def test_a_folder_that_may_not_be_written_to_is_left_alone(folder):
    folder.mkdir()
    folder.chmod(0o555)
    first_step(target_of("h100_sxm"))
    assert not list(folder.iterdir())


def test_where_no_folder_can_be_made_each_process_writes_its_own(folder):
    folder.write_text("in the way")
    scripts, _ = first_step(target_of("h100_sxm"))
    assert written_count(scripts) == len(CASES)
    assert folder.read_text() == "in the way"


def test_other_targets_settings_and_files_of_the_user_have_another_place(folder, tmp_path, monkeypatch):
    user = tmp_path / "user"
    monkeypatch.setattr(_kept_scripts, "user_folder", lambda: user)
    h100 = target_of("h100_sxm")
    paths = {PATH_OF(h100, USUAL), PATH_OF(target_of("h100_sxm", ['power.limit="300 W"']), USUAL)}
    (user / "targets").mkdir(parents=True)
    (user / "targets/mine.toml").write_text("")
    assert len(paths | {PATH_OF(h100, USUAL)}) == 3
    (user / "coefficients").mkdir()
    (user / "coefficients/h100_sxm.toml").write_text("")
    assert PATH_OF(h100, USUAL) is None


def test_the_oldest_files_go_first(folder, monkeypatch):
    monkeypatch.setattr(_kept_scripts, "_MOST_FILES", 2)
    folder.mkdir()
    for place in range(4):
        (folder / f"{place}.scripts").write_bytes(b"")
        os.utime(folder / f"{place}.scripts", ns=(place, place))
    first_step(target_of("h100_sxm"), CASES[:1])
    assert {path.name for path in folder.iterdir()} >= {"3.scripts"}
    assert len(list(folder.iterdir())) == 2
