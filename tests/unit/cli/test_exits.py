"""How a command ends when its reader has seen enough, when it is interrupted, and when something unforeseen happens."""

import signal
import subprocess
import sys
import time

import pytest

from nearpeak import cli

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
