"""The process behind `run_isolated`: imports once, forks a child per request, watches it and kills what is left."""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from nearpeak.capture._failure import failure
from nearpeak.capture._isolation import receive, send
from nearpeak.errors import CaptureError, NearpeakError

_KEPT_OUTPUT_BYTES = 16384
_POLL_S = 0.02
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def serve(preload: Sequence[str]) -> None:
    """Answer requests on standard input until it ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _silence(os.open(os.devnull, os.O_RDWR))
    sys.path[:] = pickle.loads(receive(requests))
    for module in preload:
        _load(module)
    gc.collect()
    gc.freeze()
    while True:
        try:
            request = pickle.loads(receive(requests))
        except EOFError:
            return
        send(answers, pickle.dumps(_answer(request, requests.fileno())))


def _load(module: str) -> None:
    """Import `module` if it is there; with PyTorch, also everything that its first capture would import."""
    try:
        importlib.import_module(module)
    except ImportError:
        return  # the child says which extra is missing
    if module == "torch":
        import torch

        from nearpeak.capture.torch_dispatch import capture_torch

        importlib.import_module("torch._dynamo")  # optimizers import it at their first step
        torch.set_num_threads(1)
        capture_torch(lambda: torch.nn.Linear(4, 4), lambda: ((torch.rand(2, 4),), {}), name="warm-up")


def _silence(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _answer(request: tuple[Any, ...], requests: int) -> tuple[str, Any, str]:
    """Return verdict, payload and the tail of the output of a child that runs `request`."""
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


def _watch(child: int, result: int, output: int, requests: int, deadline: float) -> tuple[str, Any, str]:
    """Collect the child's answer and output until it is complete, the child is gone or time is up."""
    answer, printed, opened = b"", b"", [result, output]
    while True:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        ready = select.select([*opened, requests], [], [], 0 if ended else _POLL_S)[0]
        for pipe in ready:
            if pipe == requests:  # nobody asks while an answer is due: the caller is gone
                os.killpg(child, signal.SIGKILL)
                os._exit(0)
            data = os.read(pipe, 1 << 20)
            if not data:
                opened.remove(pipe)
            elif pipe == result:
                answer += data
            else:
                printed = (printed + data)[-_KEPT_OUTPUT_BYTES:]
        if _complete(answer):
            verdict, payload = pickle.loads(answer[8:])
            return verdict, payload, _text(printed)
        if ended and not ready:
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            return "died", code, _text(printed)
        if time.monotonic() > deadline:
            return "timeout", None, _text(printed)


def _complete(answer: bytes) -> bool:
    return len(answer) >= 8 and len(answer) - 8 >= struct.unpack(">Q", answer[:8])[0]


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")


def _child(request: tuple[Any, ...], result: int, output: int) -> NoReturn:
    """Run the request, write the answer and end; never returns."""
    function, arguments, _, memory_bytes, path, subject = request
    _silence(output)
    _limit(memory_bytes)
    sys.path[:] = path
    try:
        module, name = function.split(":")
        value = getattr(importlib.import_module(module), name)(**arguments)
        answer = ("result", pickle.dumps(value))
    except NearpeakError as error:
        answer = ("error", pickle.dumps((type(error).__name__, str(error))))
    except SystemExit as error:
        answer = ("error", _pickled(f"{subject}: it called sys.exit({error.code!r}) while being captured"))
    except BaseException as error:
        answer = ("error", _pickled(failure(subject, "capture", error)))
    with os.fdopen(result, "wb") as pipe:
        send(pipe, pickle.dumps(answer))
    os._exit(0)


def _pickled(message: str) -> bytes:
    return pickle.dumps((CaptureError.__name__, message))


def _limit(memory_bytes: int) -> None:
    """Limit what the child may allocate on top of what it starts with, and let it die with the server."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    with open("/proc/self/statm") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + memory_bytes, present + memory_bytes))
