"""The fork server behind `call_isolated`: one child process per request, with limits on its time and memory."""

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import re
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from nearpeak.base.isolation import receive, send
from nearpeak.base.isolation.output_tail import Tail
from nearpeak.errors import NearpeakError

_KEPT_OUTPUT_BYTES = 16384
_POLL_S = 0.02
_MANY = 10
"""Requests after which it is worth a second to make forks cheaper."""
_HUGE_BYTES = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of madvise(2), Linux 6.1
_ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\])?$")
_LIBC = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def serve(preload: Sequence[str]) -> None:
    """Answer requests on standard input until it ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _silence(os.open(os.devnull, os.O_RDWR))
    sys.path[:] = json.loads(receive(requests))
    for module in preload:
        _load(module)
    gc.collect()
    gc.freeze()
    for number in count():
        if number == _MANY:
            _gather_pages()
        try:
            request = json.loads(receive(requests))
        except EOFError:
            return
        verdict, value, output = _answer(request, requests.fileno())
        send(answers, [verdict, output])
        send(answers, value)


def _gather_pages() -> None:
    """Gather this process's memory into pages of 2 MiB, so that a fork has 500 times fewer to copy the entries of.

    With PyTorch loaded a fork and its end took 17 ms of system time, and 5 ms afterwards. Memory that children take
    later is not affected; where the system cannot do it, nothing changes.
    """
    if sys.platform != "linux":
        return
    _LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with open("/proc/self/maps") as file:
        regions = [_ANONYMOUS.match(line) for line in file]
    for region in filter(None, regions):
        start, stop = (int(end, 16) for end in region.groups())
        start, stop = -(-start // _HUGE_BYTES) * _HUGE_BYTES, stop // _HUGE_BYTES * _HUGE_BYTES
        if stop > start:
            _LIBC.madvise(start, stop - start, _COLLAPSE)


def _load(preload: str) -> None:
    """Import a module if it is there, and call the function after the colon, if any."""
    module, _, function = preload.partition(":")
    try:
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    except ImportError:
        return  # the child says which extra is missing


def _silence(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if isinstance(sys.stdout, io.TextIOWrapper):  # the last lines must be written before a crash
        sys.stdout.reconfigure(line_buffering=True)


def _answer(request: Sequence[Any], requests: int) -> tuple[str, object, str]:
    """Return verdict, value (bytes of JSON, where the child gave one) and the tail of the output of a child."""
    result, result_end = os.pipe()
    output, output_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.close(requests)
            _child(request, result_end, output_end)
        finally:
            os._exit(1)
    os.close(result_end)
    os.close(output_end)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    try:
        return _watch(child, result, output, requests, time.monotonic() + request[2])
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(child, 0)
        os.close(result)
        os.close(output)


def _watch(child: int, result: int, output: int, requests: int, deadline: float) -> tuple[str, object, str]:
    """Collect the child's answer and output until it is complete, the child is gone or time is up."""
    answer, printed, opened = b"", Tail(_KEPT_OUTPUT_BYTES), [result, output]
    while True:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        ready = select.select([*opened, requests], [], [], 0 if ended else _POLL_S)[0]
        for pipe in ready:
            if pipe == requests:  # readable only when the caller is gone, as no request comes while an answer is due
                os.killpg(child, signal.SIGKILL)
                os._exit(0)
            data = os.read(pipe, 1 << 20)
            if not data:
                opened.remove(pipe)
            elif pipe == result:
                answer += data
            else:
                printed.add(data)
        if len(answer) >= 8 and len(answer) - 8 >= struct.unpack(">Q", answer[:8])[0]:
            verdict, value = answer[8:].split(b"\n", 1)
            return verdict.decode(), value, printed.text()
        if ended and not ready:
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            return "died", code, printed.text()
        if time.monotonic() > deadline:
            return "timeout", _added_bytes(child), printed.text()


def _added_bytes(child: int) -> int | None:
    """Return the address space that a child has added since it started; none where the system does not report it."""
    try:
        sizes = [
            int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[0]) for process in (child, "self")
        ]
    except (OSError, IndexError):  # no such system, or the child has just ended
        return None
    return max(0, sizes[0] - sizes[1]) * resource.getpagesize()


def _child(request: Sequence[Any], result: int, output: int) -> NoReturn:
    """Run the request, write the answer and end; never returns."""
    function, arguments, _, memory_bytes, path = request
    _silence(output)
    limit(memory_bytes)
    sys.path[:] = path
    renew_threads()
    try:
        module, name = function.split(":")
        verdict, text = "result", json.dumps(getattr(importlib.import_module(module), name)(**arguments))
    except NearpeakError as error:
        verdict, text = "error", json.dumps((type(error).__name__, str(error)))
    except SystemExit as error:
        verdict, text = "raised", json.dumps(("SystemExit", str(error.code)))
    except BaseException as error:
        verdict, text = "raised", json.dumps((type(error).__name__, str(error)))
    with os.fdopen(result, "wb") as pipe:
        send(pipe, f"{verdict}\n{text}".encode())
    os._exit(0)


def renew_threads() -> None:
    """Let PyTorch, if loaded, recreate the thread pool that a fork loses.

    Whoever asks for it first makes it; where two threads of a gradient ask at once, one of them aborts the process
    ("Invalid thread pool", PyTorch 2.13 built for CUDA).
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())


def limit(memory_bytes: int | None) -> None:
    """Limit the further memory of this process, disable core files, and end with the parent process.

    A limit that a parent process has set is never raised.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if memory_bytes is None:
        return
    with open("/proc/self/statm") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = present + memory_bytes if hard == resource.RLIM_INFINITY else min(present + memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
