"""Problem files that attack whoever captures them: time, memory, processes, the pipe of answers, the exit."""

# ruff: noqa: E501  # each program stands on one line
from collections.abc import Mapping

LONG_S = 86_399
"""Argument of `sleep` by which processes that a program left behind are found."""
_GOOD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x
def get_inputs():
    return [torch.rand(8, 8)]
def get_init_inputs():
    return []
"""
_HEAD = (
    "import atexit, ctypes, json, mmap, os, resource, signal, struct, subprocess, sys, tempfile, threading, time\n"
    f"SLEEP = ['/bin/sleep', '{LONG_S}']\n"
)

TIME: Mapping[str, str] = {
    "busy": "while True: pass",
    "sleep": "time.sleep(3600)",
    "regex": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "ignores_signals": "for n in range(1, 32):\n    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
    "stops_itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "stops_the_server": "os.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass",
    "reads_zero": "for line in open('/dev/zero', 'rb'): pass",
    "opens_fifo": "p = tempfile.mkdtemp() + '/f'; os.mkfifo(p); open(p)",
    "hangs_in_text": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "hangs_in_inputs": f"{_GOOD}\ndef get_inputs():\n    while True: pass",
    "hangs_in_forward": f"{_GOOD}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        while True: pass",
    "endless_inputs": f"{_GOOD}\ndef get_inputs():\n    while True: yield torch.rand(2)",
    "locks_itself": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "prints": "while True: sys.stdout.write('x' * (1 << 20))",
    "busy_threads": "for _ in range(20): threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()\nwhile True: pass",
}  # fmt: skip
"""Programs that do not end."""

MEMORY: Mapping[str, str] = {
    "bytes": "held = []\nwhile True: held.append(bytearray(32 << 20))",
    "list": "held = []\nwhile True: held.append(list(range(100000)))",
    "tensor": "import torch\nheld = []\nwhile True: held.append(torch.ones(8 << 20))",
    "one_array": "import numpy\nnumpy.ones(1 << 36)",
    "forks": "for _ in range(8):\n    if os.fork() == 0:\n        held = []\n"
    "        while len(held) < 18: held.append(bytearray(os.urandom(1) * (32 << 20)))\n        time.sleep(60)\ntime.sleep(60)",
    "lifts_its_limit": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nheld = []\nwhile True: held.append(bytearray(32 << 20))",
    "memfd": "held = [os.memfd_create('a') for _ in range(64)]\nfor f in held: os.write(f, bytes(64 << 20))\ntime.sleep(60)",
    "shared": "m = mmap.mmap(-1, 700 << 20)\nm[:] = bytes(len(m))\nn = mmap.mmap(-1, 700 << 20)\nfor i in range(0, len(n), 4096): n[i] = 1\n"
    "time.sleep(60)",
    "program": "subprocess.run([sys.executable, '-c', 'h = []\\nwhile True: h.append(bytearray(32 << 20))'])\ntime.sleep(60)",
    "recursion": "sys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "text": "raise ValueError('x' * (900 << 20))",
}  # fmt: skip
"""Programs that take too much memory, alone or together with what they start."""

PROCESSES: Mapping[str, str] = {
    "child": f"subprocess.Popen(SLEEP){_GOOD}",
    "session": f"subprocess.Popen(SLEEP, start_new_session=True){_GOOD}",
    "daemon": f"if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.execv(SLEEP[0], SLEEP){_GOOD}",
    "nameless_daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
    f"    os.execve(SLEEP[0], SLEEP, {{}}){_GOOD}",
    "deaf_daemon": "if os.fork() == 0:\n    os.setsid()\n    for n in range(1, 32):\n        if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
    f"    os.execve(SLEEP[0], SLEEP, {{}}){_GOOD}",
    "adopts": f"ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nsubprocess.Popen(['/bin/sh', '-c', 'setsid /bin/sleep {LONG_S} &']){_GOOD}",
    "outlives_parent": f"ctypes.CDLL(None).prctl(1, 0)\nif os.fork() == 0: os.execve(SLEEP[0], SLEEP, {{}}){_GOOD}",
    "fork_bomb": "while True:\n    try: os.fork()\n    except OSError: pass",
    "shell_bomb": f"subprocess.run(['/bin/sh', '-c', 'f() {{ f | f & sleep {LONG_S}; }}; f'])",
    "thread_forks": "def go():\n    time.sleep(0.2)\n    if os.fork() == 0: os.execve(SLEEP[0], SLEEP, {})\n"
    f"threading.Thread(target=go).start(){_GOOD}",
    "spawns": f"import multiprocessing\nmultiprocessing.get_context('fork').Process(target=os.execv, args=(SLEEP[0], SLEEP)).start(){_GOOD}",
    "at_exit": f"atexit.register(subprocess.Popen, SLEEP){_GOOD}",
    "ends_the_server": "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.execve(SLEEP[0], SLEEP, {})\n"
    "time.sleep(0.5)\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass",
}  # fmt: skip
"""Programs that leave processes behind."""

_FORGED = "struct.pack('>Q', 20) + b'result\\n\"forged text\"'"
ANSWERS: Mapping[str, str] = {
    "forges": "for n in range(3, 64):\n    try: os.write(n, " + _FORGED + ")\n    except OSError: pass\nos._exit(0)",
    "forges_with_zeros": "os.write(3, bytes(16) + " + _FORGED + "); os._exit(0)",
    "garbage": "for n in range(3, 64):\n    try: os.write(n, b'\\xff' * 1000)\n    except OSError: pass\nos._exit(0)",
    "forges_above": "p = f'/proc/{os.getppid()}/fd'\nfor n in os.listdir(p):\n    try: open(f'{p}/{n}', 'wb', 0).write(" + _FORGED + ")\n"
    "    except OSError: pass\nos._exit(0)",
    "writes_through_a_program": "subprocess.run(['/bin/sh', '-c', 'for n in 3 4 5 6 7 8 9; do echo forged >&$n; done'])" + _GOOD,
    "closes_all": f"os.closerange(0, 1000){_GOOD}",
    "replaces": f"os.dup2(os.open('/dev/null', os.O_RDWR), 3){_GOOD}",
    "floods": "data = bytes(1 << 20)\nwhile True: os.write(3, data)",
    "error_of_no_type": "import nearpeak.frontends.child_capture as c\nclass shown(c.NearpeakError): pass\nraise shown('named as a function')",
    "deep": "json.dumps = lambda v: '[' * 1_000_000" + _GOOD,
    "wide": "json.dumps = lambda v: '[' + '[],' * 8_000_000 + '[]]'" + _GOOD,
    "not_json": "json.dumps = lambda v: '{'" + _GOOD,
    "other_json": "json.dumps = lambda v: '[1, 2]'" + _GOOD,
    "digits": "json.dumps = lambda v: '9' * 1_000_000" + _GOOD,
}  # fmt: skip
"""Programs that write answers of their own."""

EXITS: Mapping[str, str] = {
    "exit": "os._exit(0)",
    "sys_exit": "sys.exit('bye')",
    "abort": "os.abort()",
    "segfault": "ctypes.string_at(0)",
    "interrupt": "raise KeyboardInterrupt",
    "kills_itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "bad_text": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "endless_text": "class E(Exception):\n    def __str__(self): return 7\nraise E",
    "generator_exit": "raise GeneratorExit",
    "base_exception": "raise BaseException('base')",
    "no_path": f"sys.path.clear(); sys.modules.clear(){_GOOD}",
    "moves": f"os.chdir('/'); os.environ.clear(); sys.stdout = sys.stderr = None{_GOOD}",
    "traces": f"sys.settrace(lambda *a: 1 / 0); sys.setprofile(print){_GOOD}",
}  # fmt: skip
"""Programs that end or upset the process that captures them."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "time": TIME, "memory": MEMORY, "processes": PROCESSES, "answers": ANSWERS, "exits": EXITS,
}  # fmt: skip
QUICK = ("daemon", "nameless_daemon", "forges", "forges_above", "not_json", "abort", "bad_text", "one_array")
"""A sample that takes no time limit to end."""


def source_of(name: str) -> str:
    """Return the text of a program; `good` is one that attacks nothing."""
    if name == "good":
        return _GOOD
    return _HEAD + next(group[name] for group in GROUPS.values() if name in group)
