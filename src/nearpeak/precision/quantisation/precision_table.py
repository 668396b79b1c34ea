"""Values of the precision table: time, size, energy and accuracy of a model at each number format."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from nearpeak.core.records.record_codec import Schema
from nearpeak.precision.quantisation.executed_products import ExecutedGraph

LEAST_CHANGE_RATIO = 0.1
"""Change of time from which on a verdict says more than that nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTime:
    """One precision on one target."""

    target: str
    """Target name."""
    bound_s: float | None
    """Time that nothing can beat (proved); none where there is none."""
    predicted_s: float | None = None
    """Expected time in the execution mode; none where nothing predicts it."""
    low_s: float | None = None
    """Low end of its 90 % interval."""
    high_s: float | None = None
    """High end."""
    energy_j: float | None = None
    """Expected energy; none where no power model applies."""
    reason: str = ""
    """Why something is missing."""
    execution: str = ""
    """Execution mode of expected time and energy; empty where modes make no difference."""
    graph_s: float | None = None
    """Expected time of one CUDA graph, where the host sets the expected time of single kernels; else none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Part of the labels that a model got right, over repetitions."""

    right_ratio: tuple[float, ...]
    """Right answers over all, by seed; one where nothing is trained."""
    control_ratio: tuple[float, ...] = ()
    """The same of fp32 with the same extra training, by seed."""
    trained: str = ""
    """`ptq`, `qat`, or empty for fp32."""

    @property
    def mean_ratio(self) -> float:
        """Mean over seeds."""
        return fmean(self.right_ratio)

    @property
    def sd_ratio(self) -> float | None:
        """Standard deviation over seeds; none for one."""
        return stdev(self.right_ratio) if len(self.right_ratio) > 1 else None

    @property
    def difference_ratio(self) -> float | None:
        """Mean less that of the control; none without a control."""
        return self.mean_ratio - fmean(self.control_ratio) if self.control_ratio else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeRun:
    """A quantised file, as it ran on this machine."""

    scheme: str
    """Name of the scheme; `fp32` for the model as it is."""
    text: str
    """What is quantised."""
    precision: str
    """Row of the table."""
    expected_s: float | None = None
    """Time expected before it was measured."""
    measured_s: float | None = None
    """Shortest run; none where it did not run."""
    executed: ExecutedGraph | None = None
    """What the runtime made of it."""
    file_bytes: int | None = None
    """Size of the file."""
    accuracy: Accuracy | None = None
    """Accuracy on the labelled data; none without labels."""
    reason: str = ""
    """Why it did not run; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRow:
    """A model at one precision."""

    precision: str
    """Number format of its products."""
    weight_bytes: int | None
    """Stored weights."""
    activation_bytes: int | None
    """Most that intermediate results hold at one time."""
    times: tuple[TargetTime, ...]
    """One entry per target."""
    runs: tuple[SchemeRun, ...] = ()
    """Files of this precision that ran here."""
    trained: tuple[Accuracy, ...] = ()
    """Accuracies after training or post-training quantisation, with their control."""
    reason: str = ""
    """Why no step of this precision is known; else empty."""
    note: str = ""
    """What of the step stays in a wider format; else empty."""

    @property
    def best(self) -> SchemeRun | None:
        """The fastest of its files here; none where none ran."""
        timed = [run for run in self.runs if run.measured_s is not None]
        return min(timed, key=lambda run: run.measured_s or 0.0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionTable:
    """A model at every precision."""

    name: str
    """Model."""
    targets: tuple[str, ...]
    """Targets of the proved and predicted columns."""
    rows: tuple[PrecisionRow, ...]
    """One row per precision, widest first."""
    runtime: str = ""
    """What measured here; empty where nothing was asked to."""
    verdicts: tuple[str, ...] = ()
    """One sentence per precision that was measured or predicted."""
    layer_choice: Mapping[str, str] | None = None
    """Precision of each product that is expected to be fastest in sum; none where nothing runs here."""

    @property
    def plain_s(self) -> float | None:
        """Measured time of the model as it is; none where it was not measured."""
        runs = [run for row in self.rows if row.precision == "fp32" for run in row.runs]
        return runs[0].measured_s if runs else None


PRECISION_TABLE = Schema(
    kind="nearpeak precision table", version=1, title="a saved precision table",
    advice="write it with nearpeak precision --json",
)  # fmt: skip
"""Kind and version of saved tables."""
