"""Job kind `command`: runs a program alone on a device; its last output line may be a time."""

import math
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.output_tail import Tail
from nearpeak.base.isolation.process_limits import limit
from nearpeak.core.runs.launch_pairs import BASELINE
from nearpeak.errors import MeasureError, SpecError
from nearpeak.farm.job_process import FILES
from nearpeak.farm.kinds import Kind, Payload, need

LIMIT_S = 600.0
"""Wall time of a program, where the payload does not say."""
_TAIL_BYTES = 4096


def _check(payload: Payload) -> None:
    optional = (int, float, type(None))
    need(
        payload, "command", words=list, limit_s=optional, memory_bytes=(int, type(None)), arm=(str, type(None)),
        folder=(str, type(None)),
    )  # fmt: skip
    words = payload["words"]
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise SpecError(f"command: 'words' is {str(words)[:80]}; it must be a program and its arguments, as texts")
    limit_s = payload.get("limit_s")
    if limit_s is not None and not (math.isfinite(limit_s) and limit_s > 0):
        raise SpecError(f"command: 'limit_s' is {limit_s!r}; it must be more than 0")
    if payload.get("folder") and not Path(payload["folder"]).is_absolute():
        raise SpecError(f"command: 'folder' is {payload['folder']!r}; it must be a whole path")


def _run(payload: Payload) -> Mapping[str, Any]:
    code, output = output_of(payload["words"], payload.get("folder") or None)
    if code:
        raise RuntimeError(f"it ended with code {code}: {output.strip()[-200:]}")
    return {"output": output, "time_s": time_in(output)}


def output_of(words: Sequence[str], folder: str | None = None) -> tuple[int, str]:
    """Return the exit code of a program and the end of what it printed, however much that is.

    Args:
        folder: in which it runs; none for that of this process.
    """
    if folder is not None and not Path(folder).is_dir():
        return 127, f"{folder}: is no folder on this host"
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=FILES,
            cwd=folder,
            preexec_fn=partial(limit, None),  # noqa: PLW1509  # this process has no threads
        )
    except OSError as error:
        return 127, f"{words[0]}: {error.strerror}"
    assert process.stdout is not None
    tail = Tail(_TAIL_BYTES)
    while data := process.stdout.read(1 << 16):
        tail.add(data)
    return process.wait(), tail.text()


def time_in(output: str) -> float | None:
    """Return the time that the output states, as for a bisection; none where it states none.

    >>> time_in("warming up; then" + chr(10) + "1.25 ms"), time_in("done")
    (0.00125, None)
    """
    from nearpeak.history.revision_builds import launch_of

    try:
        return launch_of(output, BASELINE).time_s
    except MeasureError:
        return None


KIND = Kind(
    name="command", pool="device", check=_check, run=_run, cost_s=lambda _: 10.0,
    limit_s=lambda payload: float(payload.get("limit_s") or LIMIT_S),
    memory_bytes=lambda payload: payload.get("memory_bytes"),
)  # fmt: skip
