"""Servers of child processes: each goes on when another ends, and limits hold for what a child starts."""

import os
import pickle
import signal
import subprocess
import sys
import types

import pytest

from nearpeak import isolation
from nearpeak.core.measurement import Outcome
from nearpeak.isolation import call_isolated, server


def test_a_server_that_ends_takes_no_other_one_with_it():
    both = [{"variables": {"WHICH": name}, "timeout_s": 60, "memory_bytes": None} for name in "ab"]
    before = [call_isolated("os:getppid", {}, **one).value for one in both]
    os.kill(before[0], signal.SIGKILL)
    ended = [call_isolated("os:getppid", {}, **both[0]) for _ in range(2)]  # the first may still have met it
    assert (ended[1].verdict, ended[1].value in before) == ("result", False)
    assert call_isolated("os:getppid", {}, **both[1]).value == before[1]


def test_a_process_within_a_limited_one_runs_under_the_limit_that_stands():
    within = {
        "function": "resource:getrlimit",
        "arguments": {"__resource": 9},
        "timeout_s": 60,
        "memory_bytes": 8 << 30,
    }
    found = call_isolated("nearpeak.isolation:call_isolated", within, timeout_s=120, memory_bytes=1 << 30)
    assert (found.verdict, found.value.verdict) == ("result", "raised")  # it ran: getrlimit takes no keyword
    assert found.value.value[0] == "TypeError"


def test_what_is_printed_last_is_kept_whatever_python_buffers(tmp_path):
    (tmp_path / "dying.py").write_text("import os\ndef say():\n    print('last words')\n    os.abort()\n")
    code = "import sys; from nearpeak.isolation import call_isolated; sys.path.insert(0, sys.argv[1])\n"
    code += "print(call_isolated('dying:say', {}, timeout_s=60, memory_bytes=None).output)"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=variables).stdout
    assert said.strip() == "last words"


class _AsAttribute:
    """Is pickled as the first releases of Python 3.11 pickle members of enumerations."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def __reduce__(self):
        return getattr, (self.kind, self.name)


def test_members_of_enumerations_come_back_however_python_stores_them_and_other_attributes_do_not():
    stored = pickle.dumps(_AsAttribute(Outcome, "CONVERGED"))
    assert isolation._loads(stored) is Outcome.CONVERGED
    with pytest.raises(pickle.UnpicklingError, match=r"'mro' of .* is not a value of nearpeak"):
        isolation._loads(pickle.dumps(_AsAttribute(Outcome, "mro")))


def test_a_forked_process_makes_the_threads_of_pytorch_anew_before_anything_asks_for_them(monkeypatch):
    asked = []
    fake = types.SimpleNamespace(get_num_threads=lambda: 3, set_num_threads=asked.append)
    monkeypatch.setitem(sys.modules, "torch", fake)
    server.renew_threads()
    assert asked == [3]
    monkeypatch.delitem(sys.modules, "torch")
    server.renew_threads()
    assert asked == [3]
