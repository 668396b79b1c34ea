"""Clock of the phases of each batch: monotonic nanoseconds on a CPU, events read at the end of the epoch on CUDA."""

import time
from itertools import pairwise
from typing import Any

from nearpeak.core.edge.training_matrix import PHASES

_MARKS = len(PHASES)


class BatchClock:
    """Marks after each phase of each batch; phases touch, so that their sum is the time from first to last mark.

    On CUDA each mark but that of waiting records an event, and nothing waits for the device before the epoch is over: a
    phase is then the time between two events on the device, and waiting is the device's, from the last event of one
    batch to the first of the next.
    """

    def __init__(self, cuda: Any = None) -> None:
        """Begin the epoch.

        Args:
            cuda: `torch.cuda`, or what stands for it; none on a CPU.
        """
        self._cuda = cuda
        self._marks_ns, self._events = list[int](), list[Any]()
        self.begin_ns = self.started_ns = self.done_ns = self.end_ns = time.monotonic_ns()

    def start(self) -> None:
        """Mark that workers are started: the first wait begins."""
        self.started_ns = time.monotonic_ns()
        self._event()

    def mark(self) -> None:
        """Mark the end of the next phase."""
        self._marks_ns.append(time.monotonic_ns())
        self._event()

    def finish(self) -> None:
        """Mark the end of the last batch, and wait for the device once."""
        if self._cuda is not None:
            self._cuda.synchronize()
        self.done_ns = time.monotonic_ns()

    def stop(self) -> None:
        """Mark the end of the epoch."""
        self.end_ns = time.monotonic_ns()

    def phases_ns(self) -> dict[str, tuple[int, ...]]:
        """Return the time of each phase of each batch."""
        if self._cuda is None:
            marks_ns = [self.started_ns, *self._marks_ns]
            spans_ns = [after - before for before, after in pairwise(marks_ns)]
        else:
            pairs = pairwise(self._events)
            spans_ns = [round(1e6 * before.elapsed_time(after)) for before, after in pairs]
        return {f"{name}_ns": tuple(spans_ns[place::_MARKS]) for place, name in enumerate(PHASES)}

    @property
    def start_ns(self) -> int:
        """Time until the workers were started."""
        return self.started_ns - self.begin_ns

    @property
    def stop_ns(self) -> int:
        """Time from the last phase to the end of the epoch."""
        return self.end_ns - (self.done_ns if self._cuda is not None or not self._marks_ns else self._marks_ns[-1])

    def _event(self) -> None:
        if self._cuda is not None:
            event = self._cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)


class NoClock(BatchClock):
    """A clock that marks begin and end only: what marks cost is measured against it."""

    def start(self) -> None:
        """Mark nothing."""

    def mark(self) -> None:
        """Mark nothing."""

    def phases_ns(self) -> dict[str, tuple[int, ...]]:
        """Return no batches."""
        return {f"{name}_ns": () for name in PHASES}
