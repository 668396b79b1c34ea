"""Named stages of a program: spans by the monotonic clock, nested, without cost where nobody records."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns, thread_time_ns

from nearpeak.core.edge.stage_pipeline import StageRecording, StageSpan


class StageRecorder:
    """Collects spans in the thread or task that records."""

    def __init__(self) -> None:
        """Begin without spans."""
        self.spans: list[StageSpan] = []
        self.walls_ns: list[tuple[int, int]] = []
        self.open_count = 0
        self.round = 0

    def recording(self) -> StageRecording:
        """Return what was recorded, in order of start."""
        spans = sorted(self.spans, key=lambda span: (span.start_ns, span.outer_count))
        return StageRecording(spans=tuple(spans), walls_ns=tuple(self.walls_ns))


_ACTIVE: ContextVar[StageRecorder | None] = ContextVar("nearpeak_stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what the block does as a stage of a pipeline; stages may contain stages, and generators may yield in them.

    Without a recorder (`record_stages`, or `nearpeak plan pipeline`) nothing is kept.

    >>> with record_stages() as recorder:
    ...     with stage("page"):
    ...         with stage("page.crops"):
    ...             pass
    >>> [(span.name, span.outer_count) for span in recorder.recording().spans]
    [('page', 0), ('page.crops', 1)]
    """
    recorder = _ACTIVE.get()
    if recorder is None:
        yield
        return
    depth, recorder.open_count = recorder.open_count, recorder.open_count + 1
    start, busy = perf_counter_ns(), thread_time_ns()
    try:
        yield
    finally:
        stop, busy = perf_counter_ns(), thread_time_ns() - busy
        recorder.open_count = depth
        recorder.spans.append(StageSpan(
            name=name, start_ns=start, stop_ns=stop, cpu_ns=busy, outer_count=depth, round=recorder.round
        ))  # fmt: skip


@contextmanager
def record_stages() -> Iterator[StageRecorder]:
    """Record the stages that the block passes through; the block itself is one pass.

    >>> with record_stages() as recorder, stage("decode"):
    ...     pass
    >>> len(recorder.recording().walls_ns)
    1
    """
    recorder = StageRecorder()
    token = _ACTIVE.set(recorder)
    start = perf_counter_ns()
    try:
        yield recorder
    finally:
        recorder.walls_ns.append((start, perf_counter_ns()))
        _ACTIVE.reset(token)
