"""Plans of pipelines around ONNX models: measured stages, nodes on their clock, calibration, and other boards."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from nearpeak.api.questions import device_of
from nearpeak.core.edge.stage_pipeline import ModelNode, PlannedPipeline, StagePipeline, StageRecording, StageTime
from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import SpecError
from nearpeak.measurement.pipelines.stage_recorder import record_stages, stage

if TYPE_CHECKING:
    from nearpeak.api.edge.stream_plan import ModelTime

ROUNDS, WARM_UP = 5, 1
"""Passes over a page that are timed, and those before them."""
MOST_SHAPES = 6
"""Shapes of one model that are captured for a board; others scale with the elements of their inputs."""

__all__ = ["plan_pipeline", "record_stages", "stage"]


def plan_pipeline(
    path: Path, page: str = "", *, target: str = "", is_measured: bool = False, calibration: Path | None = None,
    perfetto: Path | None = None, rounds: int = ROUNDS, thread_count: int = 1, engine: str = "",
) -> PlannedPipeline:  # fmt: skip
    """Run a pipeline on a page and return what each stage took, and what it would take elsewhere.

    Args:
        page: what the first stage gets; the file's own where it is empty.
        target: board for which models are predicted and bounded.
        engine: inference engine that runs them there, `tensorrt:fp16`; kernels as captured without one.
        is_measured: whether to warm up, time several passes, and record the nodes of models; else one pass is run.
        calibration: JSON of another page, whose times are scaled to this one.
        perfetto: file for the timeline of the passes.

    Raises:
        SpecError: the file is malformed, or the calibration is none.
        MeasureError: a stage raises.
    """
    from nearpeak.measurement.pipelines.pipeline_execution import run_pipeline
    from nearpeak.systems.edge.pipeline_file import pipeline_of
    from nearpeak.systems.edge.stage_times import calibrated, paddings, stage_times
    from nearpeak.systems.edge.width_buckets import batches_of

    if perfetto is not None:
        _check_suffix(perfetto)
    pipeline = pipeline_of(path)
    board = device_of(target) if target else None
    known = None if calibration is None else _calibration(calibration)
    page = page or (str(path.parent / pipeline.page) if pipeline.page else "")
    if not page:
        raise SpecError(f"{path}: --input: is missing, and the file states no input")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run = run_pipeline(
                pipeline, path.parent, page, batches_of, rounds=rounds if is_measured else 1,
                warm_up=WARM_UP if is_measured else 0, thread_count=thread_count,
                profile_folder=Path(scratch) if is_measured else None,
            )  # fmt: skip
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None
        nodes, error_ns = _joined_nodes(run.profiles, run.calls_ns, run.recording)
    recording = replace(run.recording, nodes=nodes, clock_error_ns=error_ns)
    if perfetto is not None:
        write_stages(recording, perfetto)
    stages = stage_times(recording, frozenset(row.name for row in pipeline.stages if row.model))
    stages = calibrated(stages, known[1]) if known else stages
    if board is not None:
        from nearpeak.api.edge.stream_plan import model_time

        stages = _on_board(
            pipeline, recording, stages,
            lambda model, shapes: model_time(Path(model), board, tuple(sorted(shapes)), engine),
        )  # fmt: skip
    expected = [row.expected_s for row in stages if not row.outer_count]
    return PlannedPipeline(
        name=pipeline.name, page=Path(page).name, target=board.name if board else "",
        round_count=len(recording.walls_ns), coverage_ratio=recording.coverage(), stages=stages,
        wall_s=median(stop - start for start, stop in recording.walls_ns) / 1e9,
        paddings=paddings(pipeline, recording), node_count=len(nodes), clock_error_s=error_ns / 1e9,
        calibration=known[0] if known else "",
        expected_s=sum(filter(None, expected)) if known and None not in expected else None,
    )  # fmt: skip


def _calibration(path: Path) -> tuple[str, tuple[StageTime, ...]]:
    """Return page and stages of a saved answer."""
    from nearpeak.base.input_files import json_value, text_of_file

    try:
        data = json_value(text_of_file(path))
        stages = tuple(Codec(pairs_as_objects=True).value(row, StageTime, "stages") for row in data["stages"])
        return str(data["page"]), stages
    except (ValueError, TypeError, KeyError):
        raise SpecError(f"{path}: is no JSON of 'nearpeak plan pipeline --measure --json'") from None


Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _on_board(
    pipeline: StagePipeline, recording: StageRecording, stages: Sequence[StageTime],
    time_of: "Callable[[str, Shapes], ModelTime]",
) -> tuple[StageTime, ...]:  # fmt: skip
    """Return stages with expected and least time of models on a board, summed over the shapes of one page."""
    models = {row.name: row.model for row in pipeline.stages if row.model}
    rows = []
    for row in stages:
        if not row.is_model:
            rows.append(row)
            continue
        shapes = [span.shapes for span in recording.spans if span.name == row.name and span.round == 0]
        captured = sorted(set(shapes), key=_elements)
        if len(captured) > MOST_SHAPES:  # evenly, the smallest and the largest among them
            step = (len(captured) - 1) / (MOST_SHAPES - 1)
            captured = [captured[round(place * step)] for place in range(MOST_SHAPES)]
        times = {shape: time_of(models[row.name], shape) for shape in captured}
        expected = bound = 0.0
        for shape in shapes:
            near = min(captured, key=lambda other: abs(_elements(other) - _elements(shape)))
            expected += times[near].time_s * _elements(shape) / _elements(near)
            bound += times[near].bound_s if near == shape else 0.0
        rows.append(replace(row, board_s=expected, bound_s=bound))
    return tuple(rows)


def _elements(shapes: Shapes) -> int:
    count = 0
    for _, shape in shapes:
        size = 1
        for extent in shape:
            size *= extent
        count += size
    return max(count, 1)


def _joined_nodes(
    profiles: Mapping[str, Path], calls_ns: Mapping[str, Sequence[tuple[int, int]]], recording: StageRecording
) -> tuple[tuple[ModelNode, ...], int]:
    """Return nodes of models on the clock of the spans, and the most by which they can be off.

    Every run of a model lies within the call that made it, so that the offset of the profile's clock is between the
    latest start and the earliest end; the middle is taken.

    Raises:
        SpecError: a profile fits no offset, as of another program.
    """
    from nearpeak.core.traces.trace import EventKind
    from nearpeak.traces.formats.onnxruntime_profile import FORMAT

    first = recording.walls_ns[0][0]
    nodes, error_ns = [], 0
    for name, path in profiles.items():
        trace = FORMAT.read(path)
        names = [trace.texts[int(number)] for number in trace.name]
        runs = sorted((int(trace.start_ns[row]), int(trace.end_ns[row])) for row, text in enumerate(names)
                      if text == "model_run")  # fmt: skip
        if len(runs) != len(calls_ns[name]):
            raise SpecError(
                f"stage {name}: its profile has {len(runs)} runs, and there were {len(calls_ns[name])} calls"
            )
        low = max((start - begin for (start, _), (begin, _) in zip(calls_ns[name], runs, strict=True)), default=0)
        high = min((stop - end for (_, stop), (_, end) in zip(calls_ns[name], runs, strict=True)), default=0)
        offset = (low + high) // 2
        error_ns = max(error_ns, abs(high - low) // 2)
        for row, text in enumerate(names):
            start, stop = int(trace.start_ns[row]) + offset, int(trace.end_ns[row]) + offset
            if trace.kind[row] == EventKind.HOST_OP and start >= first:
                nodes.append(ModelNode(stage=name, name=text, start_ns=start, stop_ns=stop))
    return tuple(sorted(nodes, key=lambda node: node.start_ns)), error_ns


def write_stages(recording: StageRecording, path: Path) -> None:
    """Write stages and nodes of models to a file that Perfetto opens, `.json`, `.pftrace` or `.perfetto-trace`.

    Raises:
        SpecError: the name ends in none of them.
    """
    import numpy as np

    from nearpeak.core.traces.trace import EventKind, TraceHeader
    from nearpeak.systems.timeline_trace import WRITERS
    from nearpeak.traces.reading.table_rows import EventRows

    _check_suffix(path)
    first, rows = recording.walls_ns[0][0], EventRows()
    for kind, thread, events in ((EventKind.HOST_RANGE, 0, recording.spans), (EventKind.HOST_OP, 1, recording.nodes)):
        start = np.array([event.start_ns - first for event in events], np.int64)
        end = np.array([event.stop_ns - first for event in events], np.int64)
        names = [event.name for event in events]
        place = np.full(len(events), thread, np.int64)
        rows.add(kind, names, start, end, process=np.zeros(len(events), np.int64), thread=place)
    header = TraceHeader(format="stages of a pipeline", source=path.stem, clock="monotonic", method="named stages")
    WRITERS[path.suffix](rows.trace(header), path)


def _check_suffix(path: Path) -> None:
    """Refuse a file whose name does not say how a timeline is written."""
    from nearpeak.systems.timeline_trace import WRITERS

    if path.suffix not in WRITERS:
        raise SpecError(f"{path}: a timeline is written to a file whose name ends in {', '.join(WRITERS)}")
