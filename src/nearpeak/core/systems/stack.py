"""A software stack: what the host of a training job spends on launches, micro-batches and steps."""

from dataclasses import dataclass

from nearpeak.core.systems.training_plan import FRAMEWORKS
from nearpeak.errors import SpecError

CONFIRMED_RATIO = 0.12
"""Mean error up to which measured steps confirm a stack: what the interval of a confirmed one holds of other
installations, 1.645 times INSTALLATION_SPREAD of step intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Host times of one framework of one generation.

    >>> Stack(name="mine", title="My loop", launch_s=8e-6, source="measured here").launch_s
    8e-06
    """

    name: str
    """Name of its file."""
    title: str
    """What it is, in words."""
    launch_s: float
    """Host time of one call and its kernel; 0 where a graph launches all of them."""
    further_launch_s: float = 3.5e-6
    """Host time of each further kernel of one call: the driver's launch alone (public profiles of CUDA, 2 to 5 us)."""
    backward_ratio: float = 1.0
    """Host time of a launch in the backward pass over that in the forward pass: gradients are launched without the
    user's Python."""
    micro_batch_s: float = 0.0
    """Fixed host time of each micro-batch, during which the device waits: batch fetch, broadcast, synchronisation."""
    step_s: float = 0.0
    """Fixed host time of each step, during which the device waits: data, scheduler, logging, norm of the gradients."""
    uncertainty_ratio: float = 2.0
    """Factor by which the host times may be off either way, at 90 %."""
    is_captured: bool = False
    """Whether a graph launches the kernels of a micro-batch."""
    graph_launch_s: float = 0.0
    """Host time of launching one graph."""
    fusions: str = "megatron-lm"
    """Set of fused kernels, a name of `FUSIONS` of transformer layouts."""
    framework: str = "megatron-lm"
    """Framework whose rules of memory it follows, one of FRAMEWORKS of training plans."""
    has_dropout: bool = False
    """Whether hidden states and attention drop elements."""
    attention: str = "as-predicted"
    """Library of attention kernels, a name of `attention_kernels.toml` of training."""
    is_confirmed: bool = False
    """Whether host times were fitted to measured steps, or its kernels held against them within the spread between
    installations; intervals are wider where neither is so."""
    source: str
    """Where the figures come from."""

    def __post_init__(self) -> None:
        """Refuse times below zero and words that are none."""
        for name in ("launch_s", "further_launch_s", "micro_batch_s", "step_s", "graph_launch_s"):
            if getattr(self, name) < 0:
                raise SpecError(f"stack {self.name}: {name}={getattr(self, name):g} must be at least 0")
        if self.framework not in FRAMEWORKS:
            raise SpecError(f"stack {self.name}: framework={self.framework!r} is not one of {', '.join(FRAMEWORKS)}")
        if self.uncertainty_ratio < 1:
            raise SpecError(f"stack {self.name}: uncertainty_ratio={self.uncertainty_ratio:g} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFit:
    """A fitted stack and how well it meets the measurements."""

    stack: Stack
    """With the fitted launch time and time per micro-batch."""
    row_count: int
    """Measurements."""
    before_ratio: float
    """Mean error of the predicted step times before the fit."""
    after_ratio: float
    """Mean error after it."""
    median_ratio: float
    """Median error after it."""
    fits_micro_batch: bool
    """Whether the time per micro-batch was fitted: one measurement fits the launch time alone."""
