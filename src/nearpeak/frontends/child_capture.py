"""Capture in child processes, which isolates the caller from crashes, hangs, output and memory use of model code."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak import errors
from nearpeak.base.isolation import Ending, call_isolated
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, NearpeakError
from nearpeak.frontends.files.saved_workload import load_text, save_text

PRELOAD = ("nearpeak.frontends.child_capture:warm_up",)


def capture_isolated(
    frontend: str, source: str | Path, options: CaptureOptions = CaptureOptions(), **details: Any
) -> Workload:
    """Return the workload that a frontend makes of a source in a child process of its own.

    Args:
        frontend: `module:function`, which takes source, options and details.
        details: further keyword arguments of the frontend, as plain data.

    Raises:
        CaptureError: the child ran out of time or memory, or ended without an answer.
        NearpeakError: what the frontend itself raised.
    """
    call = {"frontend": frontend, "source": str(source), "options": options.record(), "details": details}
    text = run_isolated("nearpeak.frontends.child_capture:captured_text", call, str(source), options)
    return load_text(text, str(source))


def run_isolated(
    function: str,
    arguments: Mapping[str, Any],
    subject: str,
    limits: CaptureOptions = CaptureOptions(),
    preload: Sequence[str] = PRELOAD,
) -> Any:
    """Return what `function` returns in a child process of its own, as plain data.

    A server process imports the slow packages once and forks a child per call. The child has its own process
    group, which is killed when the call is over, and its output is captured.

    Args:
        function: `module:function`.
        arguments: keyword arguments; like the result they cross a pipe as JSON.
        subject: name for messages.
        limits: options whose limits of time and memory hold, the server's start excluded.
        preload: modules that the server imports before it forks.

    Raises:
        CaptureError: the child ran out of time or memory, or ended without an answer.
        NearpeakError: what the function itself raised.
    """
    ending = call_isolated(
        "nearpeak.frontends.child_capture:call",
        {"function": function, "arguments": dict(arguments), "subject": subject},
        timeout_s=limits.timeout_s, memory_bytes=limits.memory_bytes, preload=preload,
    )  # fmt: skip
    if ending.verdict == "result":
        return ending.value
    if ending.verdict == "error":
        kind, message = ending.value
        raise getattr(errors, kind, CaptureError)(message)
    raise CaptureError(_failure(subject, ending, limits))


def warm_up() -> None:
    """Import PyTorch and everything that a first capture would import; without PyTorch the child reports it."""
    import torch

    from nearpeak.frontends.torch.module_capture import capture_torch

    importlib.import_module("torch._dynamo")  # optimizers import it at their first step
    torch.set_num_threads(1)
    capture_torch(lambda: torch.nn.Linear(4, 4), lambda: ((torch.rand(2, 4),), {}), name="warm-up")


def call(function: str, arguments: Mapping[str, Any], subject: str) -> Any:
    """Return the result of `function`; any exception becomes a nearpeak error that names `subject`."""
    from nearpeak.frontends.failure_message import failure

    try:
        return _imported(function)(**arguments)
    except NearpeakError:
        raise
    except SystemExit as error:
        raise CaptureError(f"{subject}: it called sys.exit({error.code!r}) while being captured") from None
    except BaseException as error:
        raise CaptureError(failure(subject, "capture", error)) from error


def captured_text(frontend: str, source: str, options: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """Return the workload that a frontend makes of a source, as the text of a saved one."""
    return save_text(_imported(frontend)(source, CaptureOptions(**options), **details))


def _imported(function: str) -> Any:
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)


def _failure(subject: str, ending: Ending, limits: CaptureOptions) -> str:
    """Return the message for a child that ended without a result."""
    if ending.verdict == "timeout":
        return f"{subject}: capture did not finish within {limits.timeout_s:g} s; give more with --timeout"
    if ending.verdict == "raised":
        return f"{subject}: {': '.join(ending.value)}"
    lines = ending.output.strip().splitlines()
    last = f"; it said last: {lines[-1][:200]}" if lines else ""
    name = ending.signal_name
    if not name:
        return (
            f"{subject}: it ended the capture process with exit code {ending.value} before the capture was done{last}"
        )
    limit = f"{limits.memory_bytes / (1 << 30):g} GiB"
    if name in ("SIGKILL", "SIGABRT"):
        return f"{subject}: the capture process was ended by {name}, perhaps over its {limit}; see --memory{last}"
    return f"{subject}: it crashed the capture process ({name}){last}"
