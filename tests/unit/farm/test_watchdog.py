"""A process under watch ends whatever it does, with all that it started; half a result is none."""

import json
import os
import sys
import time

import psutil
import pytest

from nearpeak.base.isolation.process_tree import MARK
from nearpeak.farm.process_watchdog import environment_for, watched
from nearpeak.farm.result_handover import read_result, write_result


def run(code, limit_s=20.0, **more):
    return watched([sys.executable, "-c", code], environment=environment_for(""), limit_s=limit_s, grace_s=0.3, **more)


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_process_that_ends_by_itself_is_left_alone():
    found = run("print('said')")
    assert (found.verdict, found.code, found.output, found.left_count, found.forced) == ("ended", 0, "said\n", 0, False)


def test_a_process_that_ignores_term_is_killed():
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    found = run(code, limit_s=1.5)
    assert (found.verdict, found.code, found.forced) == ("timeout", -9, True)
    assert found.time_s < 10


def test_grandchildren_go_too_even_out_of_the_group(tmp_path):
    file = tmp_path / "pids"
    code = (
        "import os,time\n"
        "for leave in (False, True):\n"
        "    if os.fork() == 0:\n"
        "        if leave:\n"
        "            os.setsid()\n"
        "            if os.fork(): os._exit(0)\n"
        f"        open({str(file)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "        time.sleep(60)\n"
        "time.sleep(0.5)\n"
    )
    found = run(code)
    pids = [int(line) for line in file.read_text().split()]
    assert found.verdict == "ended"
    assert found.left_count >= 2
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_process_that_fills_its_pipe_is_read_and_only_the_end_is_kept():
    found = run("import sys\nfor _ in range(300): sys.stdout.write('x' * 100000)\nprint('end')")
    assert found.verdict == "ended"
    assert found.output.endswith("xend\n")
    assert len(found.output) <= 16384


def test_a_process_that_eats_memory_is_ended():
    code = "import time\nheld = []\nwhile True: held.append(bytearray(8 << 20)); time.sleep(0.02)"
    found = run(code, memory_bytes=200 << 20)
    assert found.verdict == "memory"


def test_a_process_whose_lease_is_lost_is_ended_at_once():
    begun_s = time.monotonic()
    found = run("import time; time.sleep(60)", is_stopped=lambda: time.monotonic() > begun_s + 0.5)
    assert found.verdict == "stopped"
    assert found.time_s < 5


def test_the_environment_holds_no_secrets_and_shows_one_device(monkeypatch):
    monkeypatch.setenv("NEARPEAK_STORE", "postgresql://me:secret@host/perf")
    monkeypatch.setenv("PGPASSWORD", "secret")
    found = environment_for("GPU-7")
    assert "secret" not in json.dumps(found)
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert (MARK in found, environment_for("cpu@a")["CUDA_VISIBLE_DEVICES"]) == (False, "")


def test_a_result_is_whole_or_not_there(tmp_path):
    file = tmp_path / "result"
    write_result(file, {"time_s": 1.5})
    assert read_result(file) == {"time_s": 1.5}
    assert os.listdir(tmp_path) == ["result"]
    whole = file.read_bytes()
    for half in (b"", whole[:10], whole[:-1], whole.replace(b"1.5", b"1.6"), b"\xff" + whole, whole + b" "):
        file.write_bytes(half)
        assert read_result(file) is None


@pytest.mark.parametrize("text", [b"nearpeak-result 3 00000000\nabc", b"nearpeak-result x y\n", b"\n"])
def test_what_is_no_result_is_none(tmp_path, text):
    (tmp_path / "result").write_bytes(text)
    assert read_result(tmp_path / "result") is None
