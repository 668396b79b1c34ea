"""Execution of a pipeline: functions and ONNX models in order, over items and batches, each call a span."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from traceback import extract_tb
from typing import Any

import numpy as np

from nearpeak.case_tensors.user_functions import function_of
from nearpeak.core.edge.stage_pipeline import PipelineStage, StagePipeline, StageRecording
from nearpeak.errors import MeasureError, NearpeakError, SpecError
from nearpeak.measurement.machine.onnx_session import runtime_or_refusal, session_of
from nearpeak.measurement.pipelines.stage_recorder import StageRecorder, record_stages, stage

Batches = Callable[[Sequence[int], int, str], Sequence[Sequence[int]]]
LARGEST_HEAP_BYTES = 32 << 20
"""Largest block that the C library comes to keep in its heap. Source: mallopt(3), DEFAULT_MMAP_THRESHOLD_MAX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """Result and record of some passes over a page."""

    result: Any
    """What the last stage returned."""
    recording: StageRecording
    """Spans of all timed passes."""
    profiles: Mapping[str, Path] = field(default_factory=dict)
    """Profile of ONNX Runtime by stage; the caller removes the folder."""
    calls_ns: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Start and end of every call of a model, warm-up included, which the profiles hold too."""


def run_pipeline(
    pipeline: StagePipeline, folder: Path, page: Any, batches: Batches, *, rounds: int = 1, warm_up: int = 0,
    thread_count: int = 1, profile_folder: Path | None = None,
) -> PipelineRun:  # fmt: skip
    """Return what a pipeline gives for a page, and a span for every call of every stage.

    Args:
        folder: of paths in stages.
        batches: returns the items of each batch from widths, most items and order.
        profile_folder: where ONNX Runtime writes its profiles; without one it records none.

    Raises:
        MeasureError: a stage raises; the message names it and the line.
        SpecError: a stage cannot be loaded.
    """
    # The C library returns blocks to the system that are larger than the largest one freed so far, and each use of such
    # memory faults anew: without this, a page's time would depend on the sizes of the pages before it.
    np.empty(LARGEST_HEAP_BYTES - (64 << 10), np.uint8)
    executor = _Executor(pipeline, folder, batches, thread_count, profile_folder)
    with record_stages() as warm:
        for _ in range(warm_up):
            executor.pass_over(page, warm)
    result, walls = None, []
    with record_stages() as recorder:
        for turn in range(rounds):
            recorder.round = turn
            start = perf_counter_ns()
            result = executor.pass_over(page, recorder)
            walls.append((start, perf_counter_ns()))
    recording = replace(recorder.recording(), walls_ns=tuple(walls))
    profiles = {name: Path(session.end_profiling()) for name, session in executor.sessions.items() if profile_folder}
    return PipelineRun(result=result, recording=recording, profiles=profiles, calls_ns=executor.calls_ns)


class _Executor:
    """Loaded functions and sessions of a pipeline."""

    def __init__(
        self, pipeline: StagePipeline, folder: Path, batches: Batches, thread_count: int, profiles: Path | None
    ) -> None:
        """Load every stage."""
        self.pipeline, self.batches = pipeline, batches
        self.functions: dict[str, Callable[..., Any]] = {}
        self.sessions: dict[str, Any] = {}
        self.calls_ns: dict[str, list[tuple[int, int]]] = {}
        for row in pipeline.stages:
            if row.call:
                module, _, name = row.call.rpartition(":")
                place = f"{folder / module}:{name}" if module.endswith(".py") else row.call
                self.functions[row.name] = function_of(place, f"stage {row.name}")
                continue
            path = Path(row.model)
            if not path.is_file():
                raise SpecError(f"stage {row.name}: {path}: not found; model is the path of an ONNX file")
            runtime = runtime_or_refusal(f"stage {row.name}")
            prefix = "" if profiles is None else str(Path(tempfile.mkdtemp(dir=profiles)) / "profile")
            try:
                self.sessions[row.name] = session_of(runtime, path, thread_count, profile=prefix)
            except Exception as error:  # the runtime's own exceptions share no base
                raise SpecError(f"stage {row.name}: {path}: {_first_line(error)}") from None
            self.calls_ns[row.name] = []

    def pass_over(self, page: Any, recorder: StageRecorder) -> Any:
        """Return the result of the last stage for a page."""
        results: dict[str, Any] = {"input": page}
        last = page
        for row in self.pipeline.stages:
            arguments = [results[name] for name in row.inputs] if row.inputs else [last]
            try:
                last = self._result(row, arguments, recorder)
            except NearpeakError:
                raise
            except Exception as error:
                file = getattr(getattr(self.functions.get(row.name), "__code__", None), "co_filename", "")
                steps = extract_tb(error.__traceback__)
                step = next((step for step in reversed(steps) if step.filename == file), steps[-1])
                raised = (
                    f"{type(error).__name__}: {_first_line(error)} ({Path(step.filename).name}, line {step.lineno})"
                )
                raise MeasureError(f"stage {row.name}: raised {raised}") from error
            results[row.name] = last
        return last

    def _result(self, row: PipelineStage, arguments: list[Any], recorder: StageRecorder) -> Any:
        """Return the result of a stage, all items of it."""
        if row.batch:
            return self._batched(row, arguments[0], recorder)
        call = self._inference if row.model else self._call
        if row.is_each:
            items, rest = arguments[0], arguments[1:]
            return [call(row, [item, *rest], recorder) for item in items]
        return call(row, arguments, recorder)

    def _call(self, row: PipelineStage, arguments: list[Any], recorder: StageRecorder) -> Any:
        """Return what the function of a stage returns."""
        function = self.functions[row.name]
        with stage(row.name):
            result = function(*arguments)
        taken, sent = array_bytes(arguments), array_bytes(result)
        recorder.spans[-1] = replace(recorder.spans[-1], in_bytes=taken, out_bytes=sent)
        return result

    def _inference(
        self, row: PipelineStage, arguments: list[Any], recorder: StageRecorder, widths: tuple[int, ...] = ()
    ) -> Any:
        """Return the only output of a model, or the list of its outputs."""
        session = self.sessions[row.name]
        argument = arguments[0]
        feeds = argument if isinstance(argument, dict) else {session.get_inputs()[0].name: argument}
        with stage(row.name):
            start = perf_counter_ns()
            outputs = session.run(None, feeds)
            self.calls_ns[row.name].append((start, perf_counter_ns()))
        shapes = tuple((name, tuple(np.shape(value))) for name, value in feeds.items())
        recorder.spans[-1] = replace(
            recorder.spans[-1], in_bytes=array_bytes(feeds), out_bytes=array_bytes(outputs), shapes=shapes,
            columns=widths,
        )  # fmt: skip
        return outputs[0] if len(outputs) == 1 else outputs

    def _batched(self, row: PipelineStage, items: Sequence[Any], recorder: StageRecorder) -> list[Any]:
        """Return the output row of each item, which ran in batches padded with zeros to the widest."""
        widths = [int(np.shape(item)[-1]) for item in items]
        rows: list[Any] = [None] * len(items)
        for batch in self.batches(widths, row.batch, row.order):
            widest = max(widths[place] for place in batch)
            first = np.asarray(items[batch[0]])
            with stage(f"{row.name}.pad"):
                block = np.zeros((len(batch), *first.shape[:-1], widest), first.dtype)
                for line, place in enumerate(batch):
                    block[line, ..., : widths[place]] = items[place]
            recorder.spans[-1] = replace(recorder.spans[-1], out_bytes=block.nbytes)
            outputs = self._inference(row, [block], recorder, tuple(widths[place] for place in batch))
            for line, place in enumerate(batch):
                rows[place] = outputs[line]
        return rows


def array_bytes(value: Any) -> int:
    """Return the bytes of the arrays in a value, in lists, tuples and mappings too.

    >>> array_bytes({"x": np.zeros((2, 3), "f4"), "rest": [np.zeros(4, "u1"), "text"]})
    28
    """
    if isinstance(value, dict):
        return sum(array_bytes(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(array_bytes(part) for part in value)
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no message"])[0][:200]
