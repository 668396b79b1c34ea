"""Training runs of a benchmark matrix: the plan, its cells in randomised order, and what one cell has logged."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product

from nearpeak.base.canonical_json import digest
from nearpeak.core.runs.energy import Energy
from nearpeak.core.runs.measurement import Environment
from nearpeak.errors import SpecError

MODELS = ("lenet5", "resnet18", "mobilenetv3")
CACHES = ("cold", "warm")
"""Page cache before each epoch: the data set dropped from it, or read into it."""
DEVICES = ("cpu", "cuda")
HERE = "here"
"""Power mode: the one that the board is in."""
PHASES = ("wait", "h2d", "forward", "backward", "optimizer")
"""Parts of a batch, in order: they leave nothing between them out."""
ITEMS = {"lenet5": 2048, "resnet18": 128, "mobilenetv3": 64}
"""Items of a data set where the plan states none: some seconds an epoch on a core of a server."""
MOST_RUNS = 100_000
"""Runs of a plan."""
PAIRED = ("batch", "worker_count", "cache", "model")
"""Fields of a cell that an A/B pair may differ in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCell:
    """One training run: everything that its times depend on, apart from machine and software."""

    model: str
    """One of MODELS."""
    batch: int
    """Items of a batch."""
    worker_count: int
    """Worker processes of the loader; 0 where the trainer loads itself."""
    cache: str
    """One of CACHES."""
    mode: str = HERE
    """Power mode by name, or HERE."""
    round: int = 0
    """Repetition, from 0."""
    epoch_count: int = 3
    """Epochs."""
    item_count: int = 0
    """Items of the data set."""
    seed: int = 0
    """Of data, order and weights."""
    device: str = "cpu"
    """One of DEVICES."""
    thread_count: int = 1
    """Threads of the trainer."""
    prefetch_count: int = 2
    """Batches asked of each worker ahead."""
    norm: str = "batch"
    """ResNet-18: `batch` or `group` normalisation."""
    telemetry_hz: float = 10.0
    """Readings of sensors per second; 0 for none."""

    def __post_init__(self) -> None:
        """Refuse a cell that nothing can run."""
        for name, value, known in (
            ("model", self.model, MODELS), ("cache", self.cache, CACHES), ("device", self.device, DEVICES),
            ("norm", self.norm, ("batch", "group")),
        ):  # fmt: skip
            if value not in known:
                raise SpecError(f"train-bench: {name} {value!r} is not one of {', '.join(known)}")
        for name in ("batch", "epoch_count", "item_count", "thread_count", "prefetch_count"):
            if getattr(self, name) < 1:
                raise SpecError(f"train-bench: {name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.telemetry_hz <= 1000:
            raise SpecError(f"train-bench: {self.telemetry_hz:g} readings a second; give 0 to 1000")

    @property
    def label(self) -> str:
        """The case in one line; repetitions have the same one.

        >>> TrainingCell(model="lenet5", batch=16, worker_count=2, cache="warm", item_count=64).label
        'train lenet5 batch=16 workers=2 cache=warm'
        """
        return f"train {self.model} batch={self.batch} workers={self.worker_count} cache={self.cache}"

    def case(self) -> Mapping[str, str | int | float]:
        """Return what one series is of: the parameters apart from repetition and power mode."""
        plain: dict[str, str | int | float] = asdict(self)
        return {name: value for name, value in plain.items() if name not in ("round", "mode", "telemetry_hz")}

    def key(self, version: str) -> str:
        """Return the identity of the run, by its canonical parameters and the version of the code.

        >>> cell = TrainingCell(model="lenet5", batch=16, worker_count=2, cache="warm", item_count=64)
        >>> cell.key("1") == cell.key("1"), cell.key("1") == cell.key("2")
        (True, False)
        """
        return digest([asdict(self), version])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMatrix:
    """A plan: every combination of its models, batches, workers, caches and modes, several times over."""

    models: tuple[str, ...] = MODELS
    """Models."""
    batch: tuple[int, ...] = (16,)
    """Items of a batch."""
    worker_count: tuple[int, ...] = (0, 1, 2, 4)
    """Worker processes."""
    caches: tuple[str, ...] = CACHES
    """Page cache before each epoch."""
    modes: tuple[str, ...] = (HERE,)
    """Power modes."""
    repeat_count: int = 5
    """Blocks: each holds every combination once, in an order of its own."""
    epoch_count: int = 3
    """Epochs of a run."""
    item_count: Mapping[str, int] = field(default_factory=dict)
    """Items of the data set by model; ITEMS for those that are not named."""
    seed: int = 0
    """Of data, weights and orders."""
    device: str = "cpu"
    """One of DEVICES."""
    thread_count: int = 1
    """Threads of the trainer."""
    prefetch_count: int = 2
    """Batches asked of each worker ahead."""
    norm: str = "batch"
    """ResNet-18: `batch` or `group`."""
    pair: str = ""
    """One of PAIRED, of which the plan then has two values: A B B A in each block instead of a random order."""
    telemetry_hz: float = 10.0
    """Readings of sensors per second; 0 for none."""

    def __post_init__(self) -> None:
        """Refuse a plan without cells, or one that names a pair that it does not have."""
        for name in ("models", "batch", "worker_count", "caches", "modes"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise SpecError(f"train-bench: {name} {list(values)}: give at least one, each once")
        if self.repeat_count < 1:
            raise SpecError(f"train-bench: repeats is {self.repeat_count}; it must be at least 1")
        combinations = len(self.models) * len(self.batch) * len(self.worker_count) * len(self.caches)
        if combinations * len(self.modes) * self.repeat_count > MOST_RUNS:
            raise SpecError(f"train-bench: more than {MOST_RUNS:,} runs; name fewer repeats, workers, batches or modes")
        unknown = sorted(set(self.item_count) - set(MODELS))
        if unknown:
            raise SpecError(f"train-bench: items of {unknown[0]!r}; models are {', '.join(MODELS)}")
        if self.pair and (self.pair not in PAIRED or len(self._axes()[self.pair]) != 2):
            raise SpecError(f"train-bench: pair {self.pair!r}: name one of {', '.join(PAIRED)} that has two values")

    def _axes(self) -> Mapping[str, tuple[str | int, ...]]:
        return {"model": self.models, "batch": self.batch, "worker_count": self.worker_count, "cache": self.caches}

    def cells(self) -> Iterator[TrainingCell]:
        """Yield the runs in order: one mode after the other, as changing it may take a pause or a restart.

        >>> [cell.worker_count for cell in TrainingMatrix(models=("lenet5",), worker_count=(0, 1), caches=("warm",),
        ...                                               repeat_count=1, pair="worker_count").cells()]
        [0, 1, 1, 0]
        """
        draw = random.Random(f"{self.seed} modes")
        for mode in draw.sample(self.modes, len(self.modes)):
            for number in range(self.repeat_count):
                yield from self._block(mode, number)

    def _block(self, mode: str, number: int) -> Iterator[TrainingCell]:
        """Yield every combination once in random order; of pairs A, B, B and A, pair by pair."""
        draw, axes = random.Random(f"{self.seed} {mode} {number}"), dict(self._axes())
        ends = axes.pop(self.pair) if self.pair else ()
        settings = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        draw.shuffle(settings)
        for setting in settings:
            if not ends:
                yield self._cell(setting, mode, number)
                continue
            for place, end in enumerate((ends[0], ends[1], ends[1], ends[0])):
                yield self._cell({**setting, self.pair: end}, mode, 2 * number + place // 2)

    def _cell(self, setting: Mapping[str, str | int], mode: str, number: int) -> TrainingCell:
        model = str(setting["model"])
        return TrainingCell(
            model=model, batch=int(setting["batch"]), worker_count=int(setting["worker_count"]),
            cache=str(setting["cache"]), mode=mode, round=number, epoch_count=self.epoch_count,
            item_count=self.item_count.get(model, ITEMS.get(model, 1)), seed=self.seed, device=self.device,
            thread_count=self.thread_count, prefetch_count=self.prefetch_count, norm=self.norm,
            telemetry_hz=self.telemetry_hz,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLog:
    """What one epoch has logged."""

    begin_ns: int
    """Its begin on the monotonic clock."""
    end_ns: int
    """Its end: nothing is computing any more."""
    start_ns: int
    """Of it until the workers are started."""
    stop_ns: int
    """Of it after the last batch: end of the workers."""
    channels: Mapping[str, tuple[int, ...]]
    """Of each batch: `wait_ns` and the other PHASES, `read_ns` and `prep_ns` of whoever loaded it, its `worker` and
    `item_bytes`."""
    quantities: Mapping[str, float]
    """`loss` (cross entropy, nats) and `accuracy`, mean over the items of the epoch as they were trained on."""
    data_bytes: int
    """Bytes of the data set's files."""
    resident_before_bytes: int
    """Of them in the page cache before the epoch."""
    resident_after_bytes: int
    """Of them in the page cache after it."""
    major_fault_count: int
    """Page faults that had to read, of trainer and workers."""
    read_bytes: int
    """Bytes that storage delivered to trainer and workers."""
    energies: tuple[Energy, ...] = ()
    """Energy by source with its error bound; empty where nothing meters it."""
    throttle: tuple[str, ...] = ()
    """Reasons for reduced clocks that a device has reported."""
    temperatures_celsius: Mapping[str, float] = field(default_factory=dict)
    """Highest reading of each sensor."""

    @property
    def epoch_s(self) -> float:
        """Time of the epoch."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Time of each phase over all batches, and of the start and stop of workers."""
        sums = {name: sum(self.channels[f"{name}_ns"]) / 1e9 for name in PHASES}
        return {"start": self.start_ns / 1e9, **sums, "stop": self.stop_ns / 1e9}

    @property
    def stall_s(self) -> float:
        """Time in which the trainer waits for data or for workers."""
        return sum(self.phases_s[name] for name in ("start", "wait", "stop"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLog:
    """What one training run has logged."""

    cell: TrainingCell
    """What ran."""
    key: str
    """Its identity."""
    environment: Environment
    """Machine and software."""
    facts: Mapping[str, str]
    """Power mode as found, storage, form of the data, how the page cache was emptied, why energy is missing."""
    begun_wall_ns: int
    """When it began, since 1970 UTC."""
    epochs: tuple[EpochLog, ...]
    """Epochs, in order."""

    @property
    def later(self) -> tuple[EpochLog, ...]:
        """Epochs after the first; the first where there is no other."""
        return self.epochs[1:] or self.epochs

    def keyed(self, key: str) -> "CellLog":
        """Return it with the identity that the caller gives it."""
        return replace(self, key=key)
