"""Captures in child processes: whatever a file does, the caller gets one clear line and nothing is left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.child_capture import capture_isolated

pytestmark = pytest.mark.slow

CAPTURE = "nearpeak.frontends.torch.problem_file:capture_problem"
PROBLEMS = Path(__file__).parents[2] / "fixtures" / "problems"


def problem(folder, *, top="", forward="return x + 1"):
    path = folder / "mine.py"
    body = "\n        ".join(forward.splitlines())
    path.write_text(
        f"import os, sys, time\nimport torch\nfrom torch import nn\n{top}\n"
        f"class Model(nn.Module):\n    def forward(self, x):\n        {body}\n"
        "def get_inputs():\n    return [torch.rand(4)]\n"
    )
    return path


def captured(path, **limits):
    return capture_isolated(CAPTURE, path, CaptureOptions(**limits))


def test_the_result_is_that_of_a_capture_in_this_process():
    from nearpeak.frontends.torch.problem_file import capture_problem

    path = PROBLEMS / "transformer_block.py"
    assert captured(path) == capture_problem(path)


def test_the_caller_does_not_import_torch_and_what_the_file_prints_is_swallowed(tmp_path):
    path = problem(tmp_path, top="print('noise'); sys.stderr.write('noise'); os.write(1, b'noise')")
    code = (
        "import sys; from nearpeak.frontends.child_capture import capture_isolated\n"
        f"w = capture_isolated({CAPTURE!r}, {str(path)!r})\n"
        "print(len(w.calls), 'torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("1 False\n", "")


@pytest.mark.parametrize(("top", "message"), [
    ("raise ValueError('no good')", r"mine.py: reading the file raised ValueError: no good \(mine.py:4\)"),
    ("os._exit(3)", "ended the capture process with exit code 3"),
    ("sys.exit(4)", r"called sys.exit\(4\)"),
    ("import ctypes; ctypes.string_at(0)", r"crashed the capture process \(SIGSEGV\)"),
    ("print('last words'); os.abort()", "SIGABRT.*its last output: last words"),
    ("while True: pass", "did not finish within 2 s; give more with --timeout"),
    ("bytearray(64 << 30)", "ran out of memory.*--memory"),
    ("[0] * (8 << 30)", "out of memory"),
])  # fmt: skip
def test_misbehaviour_is_one_line(tmp_path, top, message):
    with pytest.raises(CaptureError, match=message) as caught:
        captured(problem(tmp_path, top=top), timeout_s=2 if "while" in top else 60, memory_bytes=1 << 30)
    assert "\n" not in str(caught.value)


def test_errors_keep_their_class(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        captured(tmp_path / "absent.py")


def test_the_next_capture_works_after_a_crash(tmp_path):
    with pytest.raises(CaptureError):
        captured(problem(tmp_path, top="os.abort()"))
    assert len(captured(problem(tmp_path)).calls) == 1


def test_processes_that_a_file_leaves_behind_are_killed(tmp_path):
    mark = tmp_path / "pid"
    top = (
        f"import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nopen({str(mark)!r}, 'w').write(str(child.pid))"
    )
    captured(problem(tmp_path, top=top))
    assert gone(int(mark.read_text()))


def test_a_capture_ends_when_its_caller_is_killed(tmp_path):
    mark = tmp_path / "pid"
    path = problem(tmp_path, top=f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    code = (
        f"from nearpeak.frontends.child_capture import capture_isolated\ncapture_isolated({CAPTURE!r}, {str(path)!r})"
    )
    caller = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    caller.kill()
    caller.wait()
    assert gone(int(mark.read_text()))


def gone(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.05)
    os.kill(pid, 9)
    return False
