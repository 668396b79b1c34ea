"""How a command ends when its reader has seen enough, when it is interrupted, and when something unforeseen happens."""

import ast
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from nearpeak import cli
from nearpeak.cli.plans import serve_command
from nearpeak.cli.run import measure
from nearpeak.cli.shared.time_limit_option import exit_code
from nearpeak.core.answers.time_limit import LimitVerdict, TimeLimit
from nearpeak.core.runs.measurement import Outcome
from nearpeak.errors import EXIT_CODES, INCONCLUSIVE_CODE, SLOWER_CODE

WORDS = [sys.executable, "-m", "nearpeak"]


def test_a_reader_that_has_seen_enough_is_no_error():
    with subprocess.Popen([*WORDS, "show", "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


def test_an_interrupt_ends_in_one_word_and_its_code(tmp_path):
    (tmp_path / "slow.py").write_text("import time\nopen('begun', 'w')\ntime.sleep(60)\n")
    words = [*WORDS, "capture", "slow.py"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert (process.returncode, said) == (130, b"nearpeak: stopped\n")


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("x")])
def test_what_nobody_foresaw_is_one_line_that_asks_for_a_report(error, monkeypatch, capsys):
    def fail(_words):
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setattr(sys, "argv", ["nearpeak", "show"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert "is a fault of nearpeak" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("text", ["20s", "20 s", "20", "20000 ms"])
def test_a_time_limit_of_capture_takes_units_as_others_do(text):
    from nearpeak.cli.shared.options import seconds_of

    assert seconds_of(text, "--timeout", "s") == 20.0


def test_commands_name_their_exit_codes_where_the_table_of_meanings_stands():
    literals = [
        f"{path.name}:{call.lineno}"
        for path in Path(cli.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Exit")
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2
    ]
    assert not literals


def test_the_help_states_what_every_exit_code_means():
    help_text = " ".join(CliRunner().invoke(cli.application(("doctor",)), ["--help"]).output.split())
    assert all(f"{code} {meaning}" in help_text for code, meaning in EXIT_CODES.items())


def verdict(expected_s):
    limit = TimeLimit(text="20 ms", noun="step", value_s=0.02, is_rate=False)
    return LimitVerdict(limit=limit, allowed_s=0.02, expected_s=expected_s, low_s=0.01, high_s=0.03, bound_s=0.005)


@pytest.mark.parametrize(("expected_s", "code"), [(0.019, 0), (0.021, SLOWER_CODE), (None, INCONCLUSIVE_CODE)])
def test_a_limit_is_decided_by_what_is_expected(expected_s, code):
    assert exit_code([verdict(expected_s)]) == code


@pytest.mark.parametrize(("rate_per_s", "code"), [(12.0, 0), (11.9, SLOWER_CODE)])
def test_a_rate_is_decided_by_what_is_expected_as_a_time_is(rate_per_s, code, capsys):
    option = SimpleNamespace(rate_per_s=rate_per_s, low_per_s=9.0, high_per_s=15.0)
    plan = SimpleNamespace(best=option, device_count=2, target="l4")
    with pytest.raises(typer.Exit) if code else nullcontext() as stop:
        serve_command._tell_whether(plan, 12.0)
    assert code == (stop.value.exit_code if stop else 0)
    assert "the interval holds it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code"), [("crash", 3), ("timeout", 3), ("oom", 3), ("failed", 3), ("infra", 3), ("incorrect", 12)]
)
def test_a_measured_case_without_a_result_has_its_exit_code(outcome, code):
    assert measure.exit_code([SimpleNamespace(outcome=Outcome(outcome), has_times=False)]) == code


@pytest.mark.parametrize("outcome", ["crash", "timeout", "oom", "failed", "infra"])
def test_a_missing_result_outweighs_a_wrong_one(outcome):
    found = [SimpleNamespace(outcome=Outcome(name), has_times=False) for name in ("incorrect", outcome)]
    assert measure.exit_code(found) == 3
