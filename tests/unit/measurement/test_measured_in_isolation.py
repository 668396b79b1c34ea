"""Cases in processes of their own: whatever a case does becomes a row, and the run goes on."""

import contextlib
import dataclasses
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.api.measured_analysis import measure
from nearpeak.cli import application
from nearpeak.core.runs.measurement import Environment, Measurement, Outcome, Timing
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.measurement.machine.device_lock import device_lock, lock_path
from nearpeak.measurement.result_file import read_results
from nearpeak.measurement.session import run_cases
from nearpeak.measurement.timed_runner import RECORDING

CASE = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")
TIMING = Timing(budget_s=0.01, limit_s=10.0, memory_bytes=1 << 29, flush_bytes=0, cache="hot", validate=False)


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(("kernel", "outcome", "note"), [
    ("segfault", Outcome.CRASH, "SIGSEGV"),
    ("hang", Outcome.TIMEOUT, "it did not end within 3 s (--limit)"),
    ("exhaust", Outcome.OOM, ""),
    ("leave", Outcome.CRASH, "exit code 3"),
    ("kill", Outcome.CRASH, "SIGKILL: it was killed, and not by the system for its memory"),
    ("fail", Outcome.FAILED, "ValueError: no such kernel"),
    ("fail_with_outcome", Outcome.FAILED, "ValueError: its own field"),
    ("fail_without_words", Outcome.FAILED, "SpeechlessError"),
])  # fmt: skip
def test_a_case_that_ends_badly_is_a_row_and_the_next_one_runs(kernel, outcome, note, fresh):
    timing = Timing(**{**_fields(TIMING), "limit_s": 3.0}) if kernel == "hang" else TIMING
    (row,) = run_cases([CASE], f"callable:kernels:{kernel}", timing, fresh=fresh)
    assert row.outcome is outcome, row.note
    assert note in row.note
    assert row.samples_s == ()
    (after,) = run_cases([CASE], "callable:kernels:softmax", TIMING, fresh=fresh)
    assert after.outcome in (Outcome.CONVERGED, Outcome.BUDGET, Outcome.THROTTLED)  # a busy machine may be any of them
    assert after.samples_s
    assert after.method.process == ("fresh" if fresh else "forked")


@pytest.mark.skipif(sys.platform != "linux", reason="this system does not say how much memory a process has added")
def crashing(monkeypatch, said):
    """Let the process of a case crash where the device's own records are asked for, having `said` something last."""
    asked = []

    def taken(case, runner, timing):
        asked.append(timing.recorded)
        row = Measurement(case=case, target="gpu", runner=runner, samples_s=(1e-3,))
        crash = dataclasses.replace(row, samples_s=(), outcome=Outcome.CRASH, note="SIGSEGV", details=said)
        return crash if timing.recorded else row

    monkeypatch.setattr("nearpeak.measurement.session.measure_isolated", taken)
    return asked


def test_a_driver_that_crashes_while_it_records_costs_no_row_and_is_not_asked_again(monkeypatch):
    asked = crashing(monkeypatch, f"{RECORDING}\na warning")
    found = list(run_cases([CASE, nearpeak.case("softmax", rows=8, columns=17, dtype="fp32")], "torch_cuda", TIMING))
    assert asked == [True, False, False]
    assert [one.samples_s for one in found] == [(1e-3,)] * 2
    assert {one.note for one in found} == {"without the device's own records, which crash here (SIGSEGV)"}


def test_a_case_that_crashes_before_anything_is_recorded_is_a_crash_and_runs_once(monkeypatch):
    asked = crashing(monkeypatch, "a kernel's last words")
    (found,) = run_cases([CASE], "torch_cuda", TIMING)
    assert (found.outcome, found.note, asked) == (Outcome.CRASH, "SIGSEGV", [True])


def test_a_case_that_is_late_with_most_of_its_memory_taken_says_so():
    (row,) = run_cases([CASE], "callable:kernels:take_and_hang", Timing(**{**_fields(TIMING), "limit_s": 3.0}))
    assert row.outcome is Outcome.TIMEOUT
    said = r"; it had added [4-5]\d\d(\.\d)? MB of memory by then, of the 536\.9 MB of --memory"
    assert re.fullmatch(rf"it did not end within 3 s \(--limit\){said}", row.note), row.note


def test_a_function_that_stops_the_clocks_is_timed_by_those_that_there_were():
    (row,) = run_cases([CASE], "callable:kernels:stop_clocks", TIMING)
    assert row.has_times, row.note


@pytest.mark.parametrize(("mode", "note"), [("zero", "took no time"), ("tiny", "tells no less than 1e-09 s")])
def test_a_program_that_says_no_time_is_a_row_and_the_next_case_runs(mode, note, tmp_path):
    out, program = tmp_path / "r.jsonl", f"{sys.executable} {Path(__file__).parent / 'program.py'} {mode}"
    (tmp_path / "cases.csv").write_text("op,m,n,k,dtype\ngemm,4,4,4,fp32\ngemm,8,8,8,fp32\n")
    words = [
        "measure",
        str(tmp_path / "cases.csv"),
        "--runner",
        f"process:{program}",
        "--budget",
        "10 ms",
        "--no-check",
    ]
    found = CliRunner().invoke(application(), [*words, "--text", "--out", str(out)])
    assert found.exit_code == 3, found.output
    rows = read_results(out)
    assert [one.outcome for one in rows] == [Outcome.SUSPECT_FAST] * 2
    assert all(note in one.note for one in rows)
    again = CliRunner().invoke(application(), [*words[:2], "--runner", f"replay:{out}", "--text"])
    assert again.output.count("suspect_fast") == 2 + 1  # and how many there are of it


def _fields(timing):
    return {name: getattr(timing, name) for name in timing.__dataclass_fields__}


@pytest.mark.parametrize("text", ['{"op": "softmax", "rows": 4}', '{"op": "softmax"}\n{"op": "so', "hello"])
def test_a_file_that_holds_something_else_is_refused_and_left_as_it_was(tmp_path, text):
    out = tmp_path / "cases.jsonl"
    out.write_text(text)
    with pytest.raises(SpecError):
        list(measure([CASE], "callable:kernels:softmax", TIMING, out=out))
    assert out.read_text() == text


def test_a_file_that_nothing_came_to_be_written_to_is_not_left_behind(tmp_path):
    out, there = tmp_path / "results.jsonl", tmp_path / "there.jsonl"
    there.touch()
    for path in (out, there):
        with pytest.raises(SpecError, match="no_such_module"):
            list(measure([CASE], "callable:no_such_module:softmax", TIMING, out=path))
    assert [path.exists() for path in (out, there)] == [False, True]


def test_cases_that_come_one_by_one_are_measured_at_every_launch():
    found = list(run_cases(iter([CASE]), "null", TIMING, launch_count=2))
    assert [one.launch for one in found] == [1, 2]


def test_a_device_is_refused_as_a_file_of_results(tmp_path):
    out = tmp_path / "results.jsonl"
    out.symlink_to("/dev/zero")
    with pytest.raises(SpecError, match="no file that can be read again"):
        list(measure([CASE], "callable:kernels:softmax", TIMING, out=out))


def test_results_are_kept_and_only_what_is_missing_runs_again(tmp_path):
    out = tmp_path / "results.jsonl"
    cases = [nearpeak.case("softmax", rows=rows, columns=16, dtype="fp32") for rows in (1, 2, 3)]
    assert len(list(measure(cases[:2], "callable:kernels:softmax", TIMING, out=out))) == 2
    whole = out.read_bytes()
    out.write_bytes(whole + b'{"algorithm":"","call_count":1,"cut off')
    new = list(measure(cases, "callable:kernels:softmax", TIMING, out=out))
    assert [one.case for one in new] == [cases[2]]
    assert out.read_bytes().startswith(whole)
    found = read_results(out)
    assert [one.case for one in found] == cases
    assert found[2] == new[0]


def test_two_runs_do_not_write_one_file(tmp_path):
    out = tmp_path / "results.jsonl"
    running = measure([CASE, nearpeak.case("softmax", rows=9, columns=16, dtype="fp32")], "null", TIMING, out=out)
    next(running)
    with pytest.raises(SpecError, match="another process writes it"):
        list(measure(CASE, "null", TIMING, out=out))


def test_a_file_of_something_else_is_refused(tmp_path):
    out = tmp_path / "results.jsonl"
    out.write_text('{"op": "gemm"}\n')
    with pytest.raises(SpecError, match=r"results.jsonl:1: no line of a result file"):
        list(measure(CASE, "null", TIMING, out=out))
    assert out.read_text() == '{"op": "gemm"}\n'


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_device_that_another_user_has_measured_on_can_be_held(monkeypatch, umask):
    environment, mask = Environment(device="a shared device"), os.umask(umask)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        try:
            with device_lock(environment):
                pass
            lock_path(environment).chmod(lock_path(environment).stat().st_mode & 0o444)  # not mine to write
            with _as_nobody(), device_lock(environment):
                pass
        finally:
            os.umask(mask)


@contextlib.contextmanager
def _as_nobody():
    """Act as a user without rights of his own, where this process may."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_samples_wait_for_the_device(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    from nearpeak.measurement.machine.environment import cpu_environment

    environment = cpu_environment("numpy")
    with (
        device_lock(environment),
        pytest.raises(nearpeak.NearpeakError, match="held by another"),
        device_lock(environment, wait_s=0.05),
    ):
        pass
    with device_lock(environment, wait_s=0.0):
        assert os.listdir(tmp_path)


@pytest.mark.parametrize(("runner", "error", "message"), [
    ("torch_cpu:fast", SpecError, "takes no argument"),
    ("callable", SpecError, "needs an argument"),
    ("callable:kernels", SpecError, "is not module:function"),
    ("callable:kernels:absent", SpecError, "absent"),
    ("nul", SpecError, "did you mean null"),
])  # fmt: skip
def test_a_runner_that_cannot_be_had_is_refused_by_name(runner, error, message):
    with pytest.raises(error, match=message):
        list(measure(CASE, runner, TIMING))


@pytest.mark.parametrize(
    ("kernel", "options", "code"),
    [("softmax", (), 0), ("segfault", (), 3), ("fail", ("--no-check",), 3), ("fail", (), 3)],
)
def test_the_command_says_in_its_exit_code_that_a_case_has_no_result(kernel, options, code):
    words = ["softmax", "rows=8", "columns=16", "dtype=fp32", "--runner", f"callable:kernels:{kernel}", "--json"]
    done = CliRunner().invoke(application(), ["measure", *words, "--budget", "10 ms", *options])
    assert done.exit_code == code, done.output
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("validate", [False, True])
def test_a_row_keeps_what_an_exception_said_in_full_with_the_lines_that_raised_it(validate, tmp_path):
    out = tmp_path / "r.jsonl"
    (row,) = run_cases([CASE], "callable:kernels:fail", Timing(**{**_fields(TIMING), "validate": validate}), out)
    assert row.note.endswith("ValueError: no such kernel")
    said = row.details.splitlines()
    assert said[-2:] == ["ValueError: no such kernel", "second line"]
    assert 'raise ValueError("no such kernel' in row.details
    assert "taking.py" not in row.details
    assert next(iter(read_results(out))).details == row.details


def test_a_row_keeps_what_its_process_printed_last_and_says_on_a_terminal_where_that_is():
    words = ["measure", "softmax", "rows=8", "columns=16", "dtype=fp32", "--runner", "callable:kernels:speak_and_leave"]
    done = CliRunner().invoke(application(), [*words, "--no-check", "--json"])
    assert json.loads(done.stdout)["details"].splitlines()[-2:] == ["one error:", "in two lines"]
    done = CliRunner().invoke(application(), [*words, "--no-check", "--text"])
    assert " ".join(done.stdout.split()).endswith("its last output: in two lines (--json and --out keep 2 lines of it)")


@pytest.mark.parametrize("kernel", ["exhaust", "exhaust_slowly"])
def test_memory_that_runs_out_while_results_are_checked_is_no_wrong_result_and_is_filled_once(kernel):
    (row,) = run_cases([CASE], f"callable:kernels:{kernel}", Timing(**{**_fields(TIMING), "validate": True}))
    assert row.outcome is Outcome.OOM, row.note
    # Either limit may act first: the process's own, which raises, or that of its host, which kills.
    assert "MemoryError" in row.note or row.note.startswith("SIGKILL: it was killed for the memory that it took")


def test_an_export_whose_package_is_absent_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    words = ["measure", "fill", "elements=8", "dtype=fp32", "--runner", "null", "--export", str(tmp_path / "a.parquet")]
    done = CliRunner().invoke(application(), words)
    assert isinstance(done.exception, MissingExtraError)
    assert done.stdout == ""


@pytest.mark.parametrize(("count", "said"), [(1, "the 1 core that is usable"), (2, "the 2 cores that are usable")])
def test_threads_beyond_the_cores_are_said_wherever_cores_are_counted(count, said, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    words = ["measure", "fill", "elements=8", "dtype=fp32", "--runner", "null", "--threads", "3"]
    assert said in CliRunner().invoke(application(), words).stderr
