"""Batch, queue, KV blocks and token rates of a serving run over time, for charts and trace viewers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nearpeak.core.systems.system_timeline import Span
from nearpeak.errors import SpecError
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome, StepLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeline:
    """Means over equal stretches of a run, all replicas together."""

    edges_s: Floats
    """Ends of the stretches, one more than there are."""
    decode: Floats
    """Decoding sequences."""
    waiting: Floats
    """Waiting requests."""
    kv_blocks: Floats
    """KV blocks in use."""
    prompt_tokens_per_s: Floats
    """New tokens of prompts per second."""
    output_tokens_per_s: Floats
    """Tokens per second from decoding sequences."""
    busy_ratio: Floats
    """Time in steps over time of the stretch; above 1 for several replicas."""


def timeline(outcome: Outcome, count: int = 200) -> RunTimeline:
    """Return means over `count` equal stretches between the first step and the last; between steps nothing runs.

    Raises:
        SpecError: the run recorded no steps.
    """
    steps = _steps(outcome)
    ends = steps.start_s + steps.duration_s
    edges = np.linspace(float(steps.start_s.min()), float(ends.max()), count + 1)
    width = edges[1] - edges[0]

    def mean(values: Floats) -> Floats:
        """Spread the integral of a quantity evenly over its step, and difference it at the edges."""
        total = np.zeros(count + 1)
        for replica in range(len(outcome.step_count)):
            rows = steps.replica == replica
            if rows.any():
                places = np.column_stack([steps.start_s[rows], ends[rows]]).ravel()
                areas = np.cumsum(values[rows])
                levels = np.column_stack([areas - values[rows], areas]).ravel()
                total += np.interp(edges, places, levels)
        stretch: Floats = np.diff(total) / width
        return stretch

    return RunTimeline(
        edges_s=edges, decode=mean(steps.decode_count * steps.duration_s),
        waiting=mean(steps.waiting_count * steps.duration_s), kv_blocks=mean(steps.block_count * steps.duration_s),
        prompt_tokens_per_s=mean(steps.prompt_count), output_tokens_per_s=mean(steps.decode_count),
        busy_ratio=mean(steps.duration_s),
    )  # fmt: skip


def step_spans(outcome: Outcome, limit: int = 50_000) -> Iterator[Span]:
    """Yield the steps of each replica as spans, at most the first `limit` of the run.

    Raises:
        SpecError: the run recorded no steps.
    """
    steps = _steps(outcome)
    for row in range(min(limit, len(steps))):
        prompt, decode = int(steps.prompt_count[row]), int(steps.decode_count[row])
        kind = "mixed" if prompt and decode else "prefill" if prompt else "decode"
        start = float(steps.start_s[row])
        yield Span(
            int(steps.replica[row]), "compute", start, start + float(steps.duration_s[row]),
            f"{kind} {prompt} + {decode}",
        )  # fmt: skip


def _steps(outcome: Outcome) -> StepLog:
    if outcome.steps is None:
        raise SpecError("timeline: needs the steps of the run: record them (is_logged)")
    return outcome.steps
