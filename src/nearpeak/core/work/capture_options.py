"""Options of a capture, passed as one value from the command line to every frontend."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nearpeak.core.work.engine_choice import engine_of
from nearpeak.core.work.stored_formats import WIDE_FORMAT, cache_format, weight_format
from nearpeak.errors import SpecError

STEPS = ("forward", "decode", "train")
STEP_ALIASES = {"prefill": "forward", "inference": "forward", "training": "train"}
LARGEST_COUNT = 2**40
COUNTS = ("batch", "sequence", "kv", "layers")
"""Options that are whole numbers of at least 1."""
STORED = ("weights", "activations", "kv_cache")
"""Options about formats narrower than that of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The captured step of a model, its sizes, formats and limits.

    >>> CaptureOptions(step="prefill", batch=8).step
    'forward'
    >>> CaptureOptions(batch=0)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: batch=0: must be a whole number of at least 1 and at most 2^40
    """

    step: str = "forward"
    """One of STEPS; aliases in STEP_ALIASES are resolved."""
    training: bool | None = None
    """Whether modules are in training mode; none leaves it to the step, and to problem files."""
    batch: int | None = None
    """Sequences, images or recordings; none for one."""
    sequence: int | None = None
    """Tokens per sequence."""
    kv: int | None = None
    """Cached positions of a decode step."""
    layers: int | None = None
    """Most layers of each stack of a model type; none for all."""
    dtype: str | None = None
    """Format of weights and activations."""
    autocast: str | None = None
    """Format to which autocast on a GPU lowers the step, `bf16` or `fp16`; weights stay fp32."""
    weights: str | None = None
    """Format in which weights are stored, `fp8`, `int4`, `experts=mxfp4` and others, see `weight_format`."""
    activations: str | None = None
    """Format of the activations of products with such weights; none for the usual one."""
    kv_cache: str | None = None
    """Format in which a decode step stores keys and values, `fp8`, `int8`, see `cache_format`."""
    fusion: str | None = None
    """`inductor` for the calls of TorchInductor's graph, grouped as it would fuse them; forward only."""
    guess_sizes: bool = False
    """Whether extents that are data are guessed and counted, instead of refused."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shape of each ONNX input by name."""
    input_values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values of ONNX inputs that decide what runs, by name."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """Extent of each variable axis of a kernel definition."""
    engine: str | None = None
    """Inference engine that runs the step, `tensorrt`, `tensorrt:int8`, see `engine_of`."""
    timeout_s: float = 600.0
    """Wall time that a child process may take."""
    memory_bytes: int = 16 << 30
    """Memory that a child process may add to what it starts with."""

    def __post_init__(self) -> None:
        """Resolve the step's alias and refuse a step and counts that are none."""
        step = STEP_ALIASES.get(self.step, self.step)
        if step not in STEPS:
            raise SpecError(f"step {step!r} is not one of {', '.join((*STEPS, *STEP_ALIASES))}")
        object.__setattr__(self, "step", step)
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= LARGEST_COUNT):
                raise SpecError(f"{name}={value!r}: must be a whole number of at least 1 and at most 2^40")
        if self.engine is not None:
            engine_of(self.engine)
        _check_stored(self)

    @property
    def narrow_formats(self) -> tuple[str, ...]:
        """Names of the stated options about stored formats."""
        return tuple(name for name in STORED if getattr(self, name) is not None)

    @property
    def batch_count(self) -> int:
        """Sequences, images or recordings."""
        return self.batch or 1

    def stated(self) -> tuple[str, ...]:
        """Return the names of the options that differ from their defaults.

        >>> CaptureOptions(batch=8, training=False).stated()
        ('training', 'batch')
        """
        usual = CaptureOptions()
        return tuple(
            option.name for option in fields(self) if getattr(self, option.name) != getattr(usual, option.name)
        )

    def record(self) -> dict[str, Any]:
        """Return the options as plain data, from which `CaptureOptions(**record)` makes them again."""
        return asdict(self)


def _check_stored(options: CaptureOptions) -> None:
    """Refuse formats of weights and caches that are unknown, or that the rest of the options contradicts."""
    stated = [f"--{name.replace('_', '-')} {getattr(options, name)}" for name in options.narrow_formats]
    if not stated:
        return
    if options.weights is not None:
        weight_format(options.weights, options.activations)
    elif options.activations is not None:
        raise SpecError(f"{stated[0]}: goes with --weights; e.g. --weights int8 --activations bf16")
    if options.kv_cache is not None:
        cache_format(options.kv_cache)
    if options.step == "train":
        raise SpecError(f"{stated[0]}: weights that are trained are not stored so; give --phase forward or decode")
    for name in ("dtype", "autocast", "fusion"):
        value = getattr(options, name)
        if value is not None and (name, value) not in (("dtype", WIDE_FORMAT), ("dtype", "bfloat16")):
            raise SpecError(f"{stated[0]}: the rest of the step stays in {WIDE_FORMAT}; leave out --{name} {value}")
