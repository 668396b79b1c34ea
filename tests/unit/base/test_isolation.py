"""Servers of child processes: each goes on when another ends, and limits hold for what a child starts."""

import os
import signal
import subprocess
import sys
import types

import psutil
import pytest

from nearpeak.base.isolation import call_isolated, fork_server
from nearpeak.base.isolation.message_frame import NONCE_BYTES, Answer, write_answer


def test_a_server_that_ends_takes_no_other_one_with_it():
    both = [{"variables": {"WHICH": name}, "timeout_s": 60, "memory_bytes": None} for name in "ab"]
    before = [call_isolated("os:getppid", {}, **one).value for one in both]
    os.kill(before[0], signal.SIGKILL)
    ended = [call_isolated("os:getppid", {}, **both[0]) for _ in range(2)]  # the first may still have met it
    assert (ended[1].verdict, ended[1].value in before) == ("result", False)
    assert call_isolated("os:getppid", {}, **both[1]).value == before[1]


def test_a_process_within_a_limited_one_runs_under_the_limit_that_stands(tmp_path, monkeypatch):
    (tmp_path / "within.py").write_text(
        "from nearpeak.base.isolation import call_isolated\n"
        "def limits():\n    import resource\n    return resource.getrlimit(resource.RLIMIT_AS)\n"
        "def both():\n    found = call_isolated('within:limits', {}, timeout_s=60, memory_bytes=8 << 30)\n"
        "    return [found.verdict, found.value, limits()]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = call_isolated("within:both", {}, timeout_s=120, memory_bytes=1 << 30)
    verdict, inner, outer = found.value
    assert (found.verdict, verdict, inner) == ("result", "result", outer)


def test_what_is_printed_last_is_kept_whatever_python_buffers(tmp_path):
    (tmp_path / "dying.py").write_text("import os\ndef say():\n    print('last words')\n    os.abort()\n")
    code = "import sys; from nearpeak.base.isolation import call_isolated; sys.path.insert(0, sys.argv[1])\n"
    code += "print(call_isolated('dying:say', {}, timeout_s=60, memory_bytes=None).output)"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=variables).stdout
    assert said.strip() == "last words"


def test_an_answer_that_json_cannot_hold_is_an_error_of_the_child():
    found = call_isolated("pathlib:Path", {}, timeout_s=60, memory_bytes=None)
    assert (found.verdict, found.value[0]) == ("raised", "TypeError")


def test_a_forked_process_makes_the_threads_of_pytorch_anew_before_anything_asks_for_them(monkeypatch):
    asked = []
    fake = types.SimpleNamespace(get_num_threads=lambda: 3, set_num_threads=asked.append)
    monkeypatch.setitem(sys.modules, "torch", fake)
    fork_server.renew_threads()
    assert asked == [3]
    monkeypatch.delitem(sys.modules, "torch")
    fork_server.renew_threads()
    assert asked == [3]


def test_a_child_holds_no_file_but_its_own_pipes(tmp_path, monkeypatch):
    (tmp_path / "holding.py").write_text(
        "import os\ndef files():\n    return sorted(map(int, os.listdir('/proc/self/fd')))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = call_isolated("holding:files", {}, timeout_s=60, memory_bytes=None).value
    assert numbers[:4] == [0, 1, 2, 3]
    assert len(numbers) == 5  # and the folder that is listed


@pytest.mark.parametrize("write", ["b'x' * 100", "bytes(16) + b'\\0' * 7 + b'\\4' + b'null'", "bytes(24)"])
def test_what_does_not_begin_with_the_number_of_the_call_is_no_answer(write, tmp_path, monkeypatch):
    (tmp_path / "forging.py").write_text(f"import os\ndef forge():\n    os.write(3, {write})\n    os._exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ending = call_isolated("forging:forge", {}, timeout_s=60, memory_bytes=None)
    assert (ending.verdict, ending.value[0]) == ("raised", "AnswerError")


def test_an_answer_of_an_unknown_kind_or_shape_is_an_error():
    nonce = b"n" * NONCE_BYTES
    for verdict, text in (("memory", "1"), ("error", '"text"'), ("error", "[1, 2]"), ("result", "[" * 50_000)):
        answer, ends = Answer(nonce, 1 << 20), os.pipe()
        write_answer(ends[1], nonce, verdict, text)
        os.close(ends[1])
        with open(ends[0], "rb") as pipe:
            answer.add(pipe.read())
        assert answer.is_whole
        assert answer.value()[0] == "raised"


def test_an_answer_over_its_limit_is_refused_before_it_has_come():
    answer = Answer(b"n" * NONCE_BYTES, 100)
    answer.add(b"n" * NONCE_BYTES + (1 << 40).to_bytes(8))
    assert "longer than 100 bytes" in answer.fault


def test_what_a_child_starts_ends_with_it_whatever_its_session_and_environment(tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text(
        "import os\ndef leave():\n    ends = os.pipe()\n    if os.fork() == 0:\n        os.setsid()\n"
        "        child = os.fork()\n        if child:\n            os.write(ends[1], str(child).encode())\n"
        "            os._exit(0)\n        os.execve('/bin/sleep', ['sleep', '600'], {})\n"
        "    return int(os.read(ends[0], 20))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ending = call_isolated("leaving:leave", {}, timeout_s=60, memory_bytes=None)
    assert ending.verdict == "result"
    assert not psutil.pid_exists(ending.value)


def test_a_child_that_stops_its_server_is_ended_at_its_deadline(tmp_path, monkeypatch):
    (tmp_path / "stopping.py").write_text(
        "import os, signal\ndef stop():\n    os.kill(os.getppid(), signal.SIGSTOP)\n    while True: pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call_isolated("stopping:stop", {}, timeout_s=0.5, memory_bytes=None).verdict == "timeout"
    assert call_isolated("os:getpid", {}, timeout_s=60, memory_bytes=None).verdict == "result"


def test_memory_counts_for_all_processes_of_a_child_together(tmp_path, monkeypatch):
    (tmp_path / "growing.py").write_text(
        "import os, time\ndef grow():\n    for _ in range(3):\n        if os.fork() == 0:\n"
        "            held = bytearray(b'x') * (60 << 20)\n            time.sleep(60)\n    time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call_isolated("growing:grow", {}, timeout_s=30, memory_bytes=100 << 20).verdict == "memory"


def test_a_burst_of_processes_ends_a_child_and_one_of_threads_does_not(tmp_path, monkeypatch):
    (tmp_path / "burst.py").write_text(
        "import os, threading, time\n"
        "def processes():\n"
        "    for _ in range(100):\n"
        "        if os.fork() == 0:\n            time.sleep(30)\n            os._exit(0)\n"
        "    time.sleep(30)\n"
        "def threads():\n"
        "    every = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(100)]\n"
        "    for one in every:\n        one.start()\n"
        "    for one in every:\n        one.join()\n"
        "    return len(every)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ended, done = (
        call_isolated(f"burst:{name}", {}, timeout_s=25, memory_bytes=None) for name in ("processes", "threads")
    )
    assert (ended.verdict, ended.value[0]) == ("raised", "ProcessLimitError")
    assert (done.verdict, done.value) == ("result", 100)
