"""Times of a pipeline's stages from recorded spans: calls, shares, percentiles, padding, times for another page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from nearpeak.core.edge.stage_pipeline import (
    BatchPadding,
    PipelineStage,
    StagePipeline,
    StageRecording,
    StageSpan,
    StageTime,
)
from nearpeak.systems.edge.width_buckets import batches_of, padded_width

Path = tuple[str, ...]


def stage_times(recording: StageRecording, models: frozenset[str]) -> tuple[StageTime, ...]:
    """Return the time of each stage and named part per page, in order of first appearance.

    Args:
        models: stages that are models.

    >>> spans = (StageSpan(name="a", start_ns=0, stop_ns=9), StageSpan(name="b", start_ns=1, stop_ns=4, outer_count=1))
    >>> recording = StageRecording(spans=spans, walls_ns=((0, 9),))
    >>> [(row.name, round(row.own_s * 1e9)) for row in stage_times(recording, frozenset())]
    [('a', 6), ('a/b', 3)]
    """
    rows: dict[Path, list[StageSpan]] = {}
    for path, span in _paths(recording.spans):
        rows.setdefault(path, []).append(span)
    rounds = range(len(recording.walls_ns))
    totals = {
        path: [sum(span.stop_ns - span.start_ns for span in spans if span.round == turn) for turn in rounds]
        for path, spans in rows.items()
    }
    answers = []
    for path in _ordered(rows):
        spans, count = rows[path], len(recording.walls_ns)
        parts = [times for other, times in totals.items() if other[:-1] == path]
        self_ns = [total - sum(times[turn] for times in parts) for turn, total in enumerate(totals[path])]
        calls = sorted(span.stop_ns - span.start_ns for span in spans)
        taken, sent = (sum(values) / count for values in
                        ([span.in_bytes for span in spans], [span.out_bytes for span in spans]))  # fmt: skip
        is_model = path[-1] in models and len(path) == 1
        busy = [sum(span.cpu_ns for span in spans if span.round == turn) for turn in rounds]
        answers.append(StageTime(
            name="/".join(path), is_model=is_model, outer_count=len(path) - 1, call_count=round(len(spans) / count),
            time_s=median(totals[path]) / 1e9, own_s=median(self_ns) / 1e9, cpu_s=median(busy) / 1e9,
            p50_s=_quantile(calls, 0.5) / 1e9, p95_s=_quantile(calls, 0.95) / 1e9, in_bytes=taken, out_bytes=sent,
            driver_bytes=taken if is_model else taken + sent,
        ))  # fmt: skip
    return tuple(answers)


def _paths(spans: Sequence[StageSpan]) -> Iterator[tuple[Path, StageSpan]]:
    """Yield each span with the names of those around it."""
    around: list[str] = []
    for span in sorted(spans, key=lambda row: (row.start_ns, row.outer_count)):
        around = [*around[: span.outer_count], span.name]
        yield tuple(around), span


def _ordered(rows: Mapping[Path, object]) -> list[Path]:
    """Return paths with parts after the stage around them."""
    first = {path: place for place, path in enumerate(rows)}
    return sorted(rows, key=lambda path: [first.get(path[: end + 1], 0) for end in range(len(path))])


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[max(-(-len(ordered) * round(100 * share) // 100) - 1, 0)]


def calibrated(stages: Sequence[StageTime], page: Sequence[StageTime]) -> tuple[StageTime, ...]:
    """Return stages with the times that a measured page lets expect: in proportion to what drives each of them.

    A model's time follows the bytes of its inputs, a function's the bytes that go in and out; a stage that moves no
    arrays follows its calls. Stages that the page lacks expect nothing.
    """
    known = {stage.name: stage for stage in page}
    rows = []
    for stage in stages:
        other = known.get(stage.name)
        expected = None
        if other is not None and other.call_count:
            is_driven = other.driver_bytes > 0 and stage.driver_bytes > 0
            ratio = stage.driver_bytes / other.driver_bytes if is_driven else stage.call_count / other.call_count
            expected = other.time_s * ratio
        rows.append(replace(stage, expected_s=expected))
    return tuple(rows)


def paddings(pipeline: StagePipeline, recording: StageRecording) -> tuple[BatchPadding, ...]:
    """Return the padding of each stage with batches on the page, and the least that any batches have."""
    return tuple(
        _padding(stage, [span for span in recording.spans if span.name == stage.name and span.round == 0])
        for stage in pipeline.stages if stage.batch
    )  # fmt: skip


def _padding(stage: PipelineStage, spans: Sequence[StageSpan]) -> BatchPadding:
    batches = [span.columns for span in spans if span.columns]
    widths = [width for batch in batches for width in batch]
    padded = sum(len(batch) * max(batch) for batch in batches)
    least = batches_of(widths, stage.batch)
    return BatchPadding(
        stage=stage.name, batch=stage.batch, item_count=len(widths), column_count=sum(widths),
        padded_column_count=padded, sorted_column_count=padded_width(widths, least),
        rows=tuple((len(batch), max(widths[place] for place in batch)) for batch in least),
    )  # fmt: skip
