"""The fork server behind `call_isolated`: one child process per request, which is ended with all that it started."""

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NoReturn

from nearpeak.base.isolation.message_frame import readable, receive, send, write_answer
from nearpeak.base.isolation.process_limits import adopt_orphans, limit
from nearpeak.base.isolation.process_tree import descendants, end_all
from nearpeak.errors import NearpeakError

_POLL_S = 0.02
_MANY = 10
"""Requests after which it is worth a second to make forks cheaper."""
_HUGE_BYTES = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of madvise(2), Linux 6.1
_ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\])?$")
_MOST_DESCRIPTORS = 1 << 20


def serve(preload: Sequence[str]) -> None:
    """Answer requests on the socket that is standard input until it ends."""
    connection = socket.socket(fileno=os.dup(0))
    _silence(os.open(os.devnull, os.O_RDWR))
    adopt_orphans()
    sys.path[:], _ = receive(connection)
    for module in preload:
        load(module)
    gc.collect()
    gc.freeze()
    helpers = frozenset(process.pid for process in descendants(os.getpid()))
    send(connection, {"own": sorted(helpers)})
    for number in count():
        if number == _MANY:
            _gather_pages()
        try:
            request, descriptors = receive(connection, 2)
        except (EOFError, OSError):
            return
        _answer(request, descriptors, connection, helpers)


def _gather_pages() -> None:
    """Gather this process's memory into pages of 2 MiB, so that a fork has 500 times fewer to copy the entries of.

    With PyTorch loaded a fork and its end took 17 ms of system time, and 5 ms afterwards. Memory that children take
    later is not affected; where the system cannot do it, nothing changes.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        regions = [_ANONYMOUS.match(line) for line in file]
    for region in filter(None, regions):
        start, stop = (int(end, 16) for end in region.groups())
        start, stop = -(-start // _HUGE_BYTES) * _HUGE_BYTES, stop // _HUGE_BYTES * _HUGE_BYTES
        if stop > start:
            libc.madvise(start, stop - start, _COLLAPSE)


def load(preload: str) -> None:
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


def _answer(
    request: Mapping[str, Any], descriptors: Sequence[int], connection: socket.socket, helpers: frozenset[int]
) -> None:
    """Run a request in a child whose answer and output go to the caller's pipes; say how it ended.

    Args:
        descriptors: pipe of the answer, pipe of the output.
        helpers: processes that the preloaded modules started.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _child(request, *descriptors)
        finally:
            os._exit(1)
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    try:
        send(connection, {"pid": child})
        while not readable([connection.fileno()], _POLL_S):
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended:
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                send(connection, {"code": code})
                break
        receive(connection)  # the caller has what it needs
        left_count = _ended(child, helpers)
        send(connection, {"left_count": left_count})
    except (EOFError, OSError):  # the caller is gone
        _ended(child, helpers)
        os._exit(0)


def _ended(child: int, helpers: frozenset[int]) -> int:
    """End a child and everything that it started, which this process has adopted; return how many it left behind."""
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(child, 0)
    left_count = 0
    with contextlib.suppress(ChildProcessError):  # raised where there is none: nothing is looked for then
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        left_count = end_all(lambda: [process for process in descendants(os.getpid()) if process.pid not in helpers])
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in helpers:
                break
            os.waitpid(ended.si_pid, 0)
    return left_count


def _child(request: Mapping[str, Any], result: int, output: int) -> NoReturn:
    """Run the request, write the answer and end; never returns."""
    _silence(output)
    result = _only(result)
    limit(request["memory_bytes"])
    sys.path[:] = request["path"]
    with contextlib.suppress(OSError):  # where this is no folder of the child's, relative paths are not found
        os.chdir(request["folder"])
    renew_threads()
    try:
        module, name = request["function"].split(":")
        function = getattr(importlib.import_module(module), name)
        verdict, text = "result", json.dumps(function(**request["arguments"]))
    except NearpeakError as error:
        verdict, text = "error", json.dumps((type(error).__name__, str(error)))
    except SystemExit as error:
        verdict, text = "raised", json.dumps(("SystemExit", str(error.code)))
    except BaseException as error:
        verdict, text = "raised", json.dumps((type(error).__name__, str(error)))
    write_answer(result, bytes.fromhex(request["nonce"]), verdict, text)
    os._exit(0)


def _only(result: int) -> int:
    """Close every file of this process but the standard ones and the pipe of its answer; return where that is now.

    What the server holds is none of the child's business, and no program that the child starts inherits the pipe.
    """
    os.dup2(result, 3, inheritable=False)
    os.closerange(4, _MOST_DESCRIPTORS)
    return 3


def renew_threads() -> None:
    """Let PyTorch, if loaded, recreate the thread pool that a fork loses.

    Whoever asks for it first makes it; where two threads of a gradient ask at once, one of them aborts the process
    ("Invalid thread pool", PyTorch 2.13 built for CUDA).
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())
