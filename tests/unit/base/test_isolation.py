"""Servers of child processes: each goes on when another ends, and limits hold for what a child starts."""

import os
import signal
import subprocess
import sys
import types

from nearpeak.base.isolation import call_isolated, fork_server


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
