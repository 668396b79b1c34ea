"""Supervision of a child process by its caller: answer, output, deadline, memory limit, and its descendants."""

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.message_frame import Answer, readable, receive
from nearpeak.base.isolation.output_tail import Tail
from nearpeak.base.isolation.process_tree import added_bytes, descendants, most_added_bytes

_KEPT_OUTPUT_BYTES = 16384
_FIRST_LOOK_S, _LEAST_LOOK_S, _MOST_LOOK_S, _LOOK_SHARE = 0.02, 0.05, 0.5, 20.0
"""Time between two looks at the processes: so many times what a look takes, between these ends."""
_COUNT_S = 0.01
"""Time between two looks at how many tasks the system has, which shows a burst of forks before it takes the machine."""
MOST_PROCESSES = 64
"""Processes that a child may have started at one time."""
MOST_ANSWER_BYTES = 256 << 20
"""Longest answer of a child."""


class Watch:
    """One child, from its start to its verdict."""

    def __init__(
        self, *, server: int, own: frozenset[int], connection: socket.socket, result: int, output: int,
        deadline_s: float, memory_bytes: int | None, answer: Answer,
    ) -> None:  # fmt: skip
        """Keep what is watched.

        Args:
            server: process id of the server that forks the child.
            own: processes of the server's packages.
            result: pipe of the answer.
            output: pipe of what the child prints.
            deadline_s: moment of `time.monotonic` at which the child is ended.
        """
        self.server, self.own, self.connection, self.result, self.output = server, own, connection, result, output
        self.deadline_s, self.memory_bytes, self.answer = deadline_s, memory_bytes, answer
        self.printed, self.child = Tail(_KEPT_OUTPUT_BYTES), 0
        self.seen: dict[int, Any] = {}  # with these it is ended where the server cannot
        self._open: list[int] = []
        self._look_at_s, self._added_bytes, self._scale = 0.0, 0, threading.Thread()
        self._tasks_count, self._burst_count = _tasks_count(), MOST_PROCESSES

    def verdict(self) -> tuple[str, Any]:
        """Return verdict and value when the answer is complete, the child is gone, or it is over a limit.

        Raises:
            EOFError: the server is gone.
        """
        self._open, code, self._look_at_s = [self.result, self.output], None, time.monotonic() + _FIRST_LOOK_S
        server_end = self.connection.fileno()
        while True:
            wait_s = min(_COUNT_S, max(0.0, min(self._look_at_s, self.deadline_s) - time.monotonic()))
            ready = readable((*self._open, server_end), 0.0 if code is not None else wait_s)
            for pipe in self._open[:]:
                if pipe in ready:
                    self._take(pipe)
            if self.answer.fault:
                return "raised", ["AnswerError", self.answer.fault]
            if self.answer.is_whole:
                return self.answer.value()
            if server_end in ready:
                message, _ = receive(self.connection)
                self.child, code = message.get("pid", self.child), message.get("code", code)
            elif code is not None and not ready:
                return "died", code
            if time.monotonic() >= self.deadline_s:
                return "timeout", _more_bytes(self.child, self.server)
            is_burst, is_due = (
                _tasks_count() > self._tasks_count + self._burst_count,
                time.monotonic() >= self._look_at_s,
            )
            if is_burst:  # it must not go on while its processes are counted
                self._signal_group(signal.SIGSTOP)
            if (is_burst or is_due) and (over := self._look()):
                return over
            if is_burst:
                self._signal_group(signal.SIGCONT)
            if is_burst or is_due:  # others start tasks, too: the next look of a row takes twice as many
                self._burst_count = 2 * self._burst_count if is_burst else MOST_PROCESSES

    def end_group(self) -> None:
        """End the child and what stayed in its process group, all at once, so that nothing of it can fork meanwhile."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.child:
            with contextlib.suppress(OSError):
                os.killpg(self.child, number)

    def _take(self, pipe: int) -> None:
        data = os.read(pipe, 1 << 20)
        if not data:
            self._open.remove(pipe)
        elif pipe == self.result:
            self.answer.add(data)
        else:
            self.printed.add(data)

    def _look(self) -> tuple[str, Any] | None:
        """Note which processes there are; return the verdict on too many, or on too much memory."""
        begun_s = time.monotonic()
        processes = [process for process in descendants(self.server) if process.pid not in self.own]
        self.seen.update((process.pid, process) for process in processes)
        if len(processes) > MOST_PROCESSES:
            return "raised", ["ProcessLimitError", f"it started more than {MOST_PROCESSES} processes"]
        if self.memory_bytes is not None:
            if self._added_bytes > self.memory_bytes:
                return "memory", self._added_bytes
            is_near = most_added_bytes(processes) > self.memory_bytes / 4
            if is_near and not self._scale.is_alive():
                self._scale = threading.Thread(target=self._weigh, args=(processes,), daemon=True)
                self._scale.start()
        end_s, self._tasks_count = time.monotonic(), _tasks_count()
        share, least_s = (2.0, _LEAST_LOOK_S / 2) if self._scale.is_alive() else (_LOOK_SHARE, _LEAST_LOOK_S)
        self._look_at_s = end_s + min(_MOST_LOOK_S, max(least_s, share * (end_s - begun_s)))
        return None

    def _weigh(self, processes: list[Any]) -> None:
        """Note the memory of processes; in a thread of its own, as they can keep it waiting."""
        self._added_bytes = added_bytes(self.server, processes)


def _tasks_count() -> int:
    """Return how many tasks the whole system has (proc_loadavg(5)); 0 where it does not say."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 0


def _more_bytes(child: int, server: int) -> int | None:
    """Return the address space that a child has added since it started; none where the system does not report it."""
    try:
        sizes = [
            int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[0]) for process in (child, server)
        ]
    except (OSError, IndexError):  # no such system, or the child has just ended
        return None
    return max(0, sizes[0] - sizes[1]) * resource.getpagesize()
