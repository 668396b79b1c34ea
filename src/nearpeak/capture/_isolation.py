"""Runs captures in child processes: a model's code may print, hang, crash or eat memory without harm to the caller."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak import errors
from nearpeak.core.workload import Workload
from nearpeak.errors import CaptureError, NearpeakError
from nearpeak.isolation import Ending, call_isolated

TIMEOUT_S = 300.0
MEMORY_BYTES = 8 << 30
PRELOAD = ("nearpeak.capture._warm_up:warm_up",)


def run_isolated(
    function: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    preload: Sequence[str] = PRELOAD,
) -> Any:
    """Return what `function` returns in a child process of its own.

    A server process imports the slow packages once and forks a child per call. The child has its own process
    group, which is killed when the call is over, and whose output is swallowed.

    Args:
        function: `module:function`.
        arguments: keyword arguments; like the result they cross a pipe as pickles.
        timeout_s: limit of wall time, the server's start excluded.
        memory_bytes: address space that the child may add to what it starts with.
        preload: modules that the server imports before it forks.

    Raises:
        CaptureError: the child ran out of time or memory, or ended without an answer.
        NearpeakError: what the function itself raised.
    """
    subject = next((str(arguments[key]) for key in ("path", "name_or_config", "name") if key in arguments), function)
    call = {"function": function, "arguments": dict(arguments), "subject": subject}
    ending = call_isolated(
        "nearpeak.capture._warm_up:told", call, timeout_s=timeout_s, memory_bytes=memory_bytes, preload=preload
    )
    if ending.verdict == "result":
        return ending.value
    if ending.verdict == "error":
        kind, message = ending.value
        raise getattr(errors, kind, CaptureError)(message)
    raise CaptureError(_ending(subject, ending, timeout_s, memory_bytes))


def capture_many(
    paths: Iterable[Path],
    *,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    **options: Any,
) -> Iterator[tuple[Path, Workload | NearpeakError]]:
    """Yield each problem file with its workload, or with the error that it met, as soon as it is known."""
    for path in paths:
        arguments = {"path": path, **options}
        try:
            function = "nearpeak.capture.problem_file:capture_problem"
            yield path, run_isolated(function, arguments, timeout_s=timeout_s, memory_bytes=memory_bytes)
        except NearpeakError as error:
            yield path, error


def _ending(subject: str, ending: Ending, timeout_s: float, memory_bytes: int) -> str:
    """Return the message for a child that gave no answer."""
    if ending.verdict == "timeout":
        return f"{subject}: capture did not finish within {timeout_s:g} s; give more with --timeout"
    if ending.verdict == "raised":
        return f"{subject}: {': '.join(ending.value)}"
    said = ending.output.strip().splitlines()
    last = f"; it said last: {said[-1][:200]}" if said else ""
    name = ending.signal_name
    if not name:
        return (
            f"{subject}: it ended the capture process with exit code {ending.value} before the capture was done{last}"
        )
    limit = f"{memory_bytes / (1 << 30):g} GiB"
    if name in ("SIGKILL", "SIGABRT"):
        return f"{subject}: the capture process was ended by {name}, perhaps over its {limit}; see --memory{last}"
    return f"{subject}: it crashed the capture process ({name}){last}"
