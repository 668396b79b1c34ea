"""Inference pipeline of functions and ONNX models over one input page (e.g. OCR): stages, recorded spans, times."""

from dataclasses import dataclass
from typing import Any

from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import SpecError

GIVEN, SORTED = "given", "sorted"
_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """One stage: a function, or a model that takes one input or a mapping of inputs."""

    name: str
    """Name."""
    call: str = ""
    """`module:function` or `path/file.py:function`; empty for a model."""
    model: str = ""
    """Path of an ONNX file; empty for a function."""
    inputs: tuple[str, ...] = ()
    """Stages whose results it takes, `input` for the page; the stage before it where empty."""
    is_each: bool = False
    """Whether it takes the items of a list one by one."""
    batch: int = 0
    """Items of a list that a model takes at once, padded to the widest; 0 where it takes its argument as it is."""
    order: str = GIVEN
    """Order in which items come into batches: as `given`, or `sorted` by width."""

    def __post_init__(self) -> None:
        """Refuse stages that are both or neither."""
        if bool(self.call) == bool(self.model):
            raise SpecError(f"stage {self.name}: has either call (module:function) or model (an ONNX file)")
        if self.batch and not self.model:
            raise SpecError(f"stage {self.name}: batch is for a model; each = true gives a function one item at a time")
        if self.order not in (GIVEN, SORTED) or self.batch < 0:
            raise SpecError(f"stage {self.name}: buckets is one of {GIVEN}, {SORTED}, and batch at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePipeline:
    """Stages in order."""

    name: str
    """Name."""
    stages: tuple[PipelineStage, ...]
    """Stages."""
    page: str = ""
    """Input that is taken where none is named."""

    def __post_init__(self) -> None:
        """Refuse names that are used twice or that come later."""
        known = {"input"}
        for stage in self.stages:
            unknown = [name for name in stage.inputs if name not in known]
            if unknown or stage.name in known:
                wrong = f"takes {unknown[0]!r}, which no stage before it is called" if unknown else "has a name in use"
                raise SpecError(f"stage {stage.name}: {wrong}")
            known.add(stage.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """One execution of a stage or of a part of one."""

    name: str
    """Name."""
    start_ns: int
    """Start by the monotonic clock."""
    stop_ns: int
    """End."""
    cpu_ns: int = 0
    """Time that its thread was running on a core."""
    outer_count: int = 0
    """Spans around it."""
    round: int = 0
    """Pass over the page."""
    in_bytes: int = 0
    """Bytes of the arrays that it took."""
    out_bytes: int = 0
    """Bytes of the arrays that it returned."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Shape of each input of a model."""
    columns: tuple[int, ...] = ()
    """Widths of the items of a batch before padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNode:
    """One node of a model as ONNX Runtime's profile recorded it, on the clock of the spans."""

    stage: str
    """Stage."""
    name: str
    """Node."""
    start_ns: int
    """Start."""
    stop_ns: int
    """End."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecording:
    """Everything that some passes over a page recorded."""

    spans: tuple[StageSpan, ...]
    """Spans in order of start."""
    walls_ns: tuple[tuple[int, int], ...]
    """Start and end of each pass."""
    nodes: tuple[ModelNode, ...] = ()
    """Nodes of models."""
    clock_error_ns: int = 0
    """Most by which nodes can be off against spans."""

    def coverage(self) -> float:
        """Return the share of the passes' time that spans explain.

        >>> part = StageSpan(name="b", start_ns=1, stop_ns=3, outer_count=1)
        >>> StageRecording(spans=(StageSpan(name="a", start_ns=0, stop_ns=6), part), walls_ns=((0, 8),)).coverage()
        0.75
        """
        explained = sum(span.stop_ns - span.start_ns for span in self.spans if not span.outer_count)
        return explained / max(sum(stop - start for start, stop in self.walls_ns), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """One stage of a page: what it took, and what it would take elsewhere."""

    name: str
    """Name, with the stage around it before a slash."""
    is_model: bool
    """Whether it is a model."""
    outer_count: int
    """Spans around it."""
    call_count: int
    """Calls per page."""
    time_s: float
    """Time per page, the median over passes."""
    own_s: float
    """The same without named parts."""
    cpu_s: float
    """Time per page that its thread was running on a core; less than `time_s` where other programs took it."""
    p50_s: float
    """Median of a call."""
    p95_s: float
    """95th percentile of a call."""
    in_bytes: float
    """Bytes of arrays that come in, per page."""
    out_bytes: float
    """Bytes of arrays that go out, per page."""
    driver_bytes: float
    """What its time is taken to be in proportion to: FLOP of a model, bytes in and out of a function."""
    expected_s: float | None = None
    """Time by the calibration page; none without one."""
    board_s: float | None = None
    """Expected time on the board; none for functions and without a board."""
    bound_s: float | None = None
    """Least time on the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPadding:
    """Padding of a stage that takes items of unlike width in batches."""

    stage: str
    """Stage."""
    batch: int
    """Most items of a batch."""
    item_count: int
    """Items."""
    column_count: int
    """Sum of their widths."""
    padded_column_count: int
    """Sum of the widths of all rows as they ran."""
    sorted_column_count: int
    """The same with items sorted by width: the least of all batches of so many items."""
    rows: tuple[tuple[int, int], ...]
    """Items and width of each of these batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPipeline:
    """Everything `nearpeak plan pipeline` answers."""

    name: str
    """Pipeline."""
    page: str
    """Input."""
    target: str
    """Board; empty without one."""
    round_count: int
    """Passes that were timed."""
    wall_s: float
    """Time of a page, the median over passes."""
    coverage_ratio: float
    """Share of that time that stages explain."""
    stages: tuple[StageTime, ...]
    """Stages in order, parts after the stage around them."""
    paddings: tuple[BatchPadding, ...]
    """Padding of stages with batches."""
    node_count: int
    """Nodes of models on the clock of the stages."""
    clock_error_s: float
    """Most by which nodes can be off."""
    calibration: str = ""
    """Page by which times are expected; empty without one."""
    expected_s: float | None = None
    """Time of the page by the calibration page."""

    @property
    def model_s(self) -> float:
        """Time of models per page."""
        return sum(stage.own_s for stage in self.stages if stage.is_model)

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record
