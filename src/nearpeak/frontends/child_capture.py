"""Capture in child processes, which isolates the caller from crashes, hangs, output and memory use of model code."""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nearpeak.base.isolation import Ending, call_isolated
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, NearpeakError, error_type
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.units import show

PRELOAD: tuple[str, ...] = ("nearpeak.frontends.child_capture:warm_up",)
WITH_TRANSFORMERS: tuple[str, ...] = (*PRELOAD, "nearpeak.frontends.child_capture:warm_up_transformers")
"""Preload of sources that use transformers, whose import takes longer than most captures."""


def capture_isolated(
    frontend: str, source: str | Path, options: CaptureOptions = CaptureOptions(), *, preload: Sequence[str] = PRELOAD,
    **details: Any,
) -> Workload:  # fmt: skip
    """Return the workload that a frontend makes of a source in a child process of its own.

    Args:
        frontend: `module:function`, which takes source, options and details.
        preload: modules that the server of the child imports before it forks.
        details: further keyword arguments of the frontend, as plain data.

    Raises:
        CaptureError: the child ran out of time or memory, or ended without an answer.
        NearpeakError: what the frontend itself raised.
    """
    call = {"frontend": frontend, "source": str(source), "options": options.record(), "details": details}
    text = run_isolated("nearpeak.frontends.child_capture:captured_text", call, str(source), options, preload)
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
        raise error_type(kind, CaptureError)(message)
    raise CaptureError(_failure(subject, ending, limits))


def warm_up() -> None:
    """Import PyTorch and everything that a first capture would import; without PyTorch the child reports it."""
    import torch

    from nearpeak.frontends.torch.module_capture import capture_torch

    importlib.import_module("torch._dynamo")  # optimizers import it at their first step
    torch.set_num_threads(1)
    capture_torch(lambda: torch.nn.Linear(4, 4), lambda: ((torch.rand(2, 4),), {}), name="warm-up")


def warm_up_transformers() -> None:
    """Import what models of transformers share; without it the child reports what lacks."""
    for name in ("models.auto.modeling_auto", "modeling_utils", "generation.utils"):
        with suppress(Exception):
            importlib.import_module(f"transformers.{name}")


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
    lines = ending.output.strip().splitlines()
    last = f"; its last output: {lines[-1][:200]}" if lines else ""
    name = ending.signal_name
    if ending.verdict == "timeout":
        what = f"capture did not finish within {limits.timeout_s:g} s; give more with --timeout"
    elif ending.verdict == "raised":
        what = ": ".join(ending.value)[:1000]
    elif ending.verdict == "memory" or "bad_alloc" in ending.output:
        what = f"capture took more memory than {show(limits.memory_bytes, 'B')}; give more with --memory"
    elif not name:
        what = f"it ended the capture process with exit code {ending.value} before the capture was done{last}"
    elif name == "SIGKILL":
        what = f"its capture process was killed (SIGKILL), and not for its memory; capture it again{last}"
    else:
        what = f"it crashed the capture process ({name}){last}"
    return f"{subject}: {what}"
