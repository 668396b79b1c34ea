"""Data-loader plan: files, workers and compute of an epoch, its predicted time by cause, limits and remedies."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nearpeak.errors import SpecError

ORDERS = ("random", "same")
"""Order of the files in each epoch: newly drawn, or always the same."""
REPLACEMENTS = ("lru", "minio")
"""Page cache: least recently used pages go first, or pages stay once they are in (CoorDL's MinIO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCase:
    """Files, storage, preparation and compute of a training epoch."""

    file_count: int
    """Files, or items, of the data set; each is read once an epoch."""
    file_bytes: float
    """Mean size of a file."""
    batch: int
    """Items of a batch."""
    compute_s: float
    """Forward, backward and optimizer of one batch."""
    prep_s: float
    """Decoding and transforms of one item on one core."""
    read_bytes_per_s: float
    """Rate at which the storage delivers the files, over all readers together."""
    ram_bytes: float
    """Memory that is left for the page cache."""
    copy_s: float = 0.0
    """Copy of one batch to the device, not overlapped with compute."""
    hand_over_s: float = 0.0
    """Time of the trainer to receive one batch from a worker process."""
    send_s: float = 0.0
    """Time of a worker process to send one batch."""
    start_s: float = 0.0
    """Start and end of one worker process at each epoch."""
    start_once_s: float = 0.0
    """Start and end of workers besides, however many there are."""
    prefetch_count: int = 2
    """Batches asked of each worker ahead (PyTorch's prefetch_factor)."""
    core_count: int = 0
    """Cores for workers, and for the trainer where it computes on them; 0 where they are no limit."""
    is_compute_on_cores: bool = False
    """Whether the compute takes one of these cores."""
    order: str = "random"
    """One of ORDERS."""
    replacement: str = "lru"
    """One of REPLACEMENTS."""

    def __post_init__(self) -> None:
        """Refuse what no loader has."""
        for name in ("file_count", "batch", "prefetch_count"):
            if getattr(self, name) < 1:
                raise SpecError(f"loader: {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("file_bytes", "compute_s", "read_bytes_per_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(f"loader: {name} is {getattr(self, name):g}; it must be more than 0 and finite")
        for name in ("prep_s", "ram_bytes", "copy_s", "hand_over_s", "send_s", "start_s", "start_once_s", "core_count"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"loader: {name} is {getattr(self, name):g}; it must be at least 0 and finite")
        for name, value, known in (("order", self.order, ORDERS), ("replacement", self.replacement, REPLACEMENTS)):
            if value not in known:
                raise SpecError(f"loader: {name} {value!r} is not one of {', '.join(known)}")

    @property
    def batch_count(self) -> int:
        """Batches of an epoch; the last may be smaller."""
        return -(-self.file_count // self.batch)

    @property
    def data_bytes(self) -> float:
        """Bytes of the data set."""
        return self.file_count * self.file_bytes

    @property
    def cache_ratio(self) -> float:
        """Share of the data set that the page cache holds, at most 1."""
        return min(1.0, self.ram_bytes / self.data_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEpoch:
    """An epoch with one number of workers."""

    worker_count: int
    """Worker processes; 0 where the trainer loads itself."""
    epoch_s: float
    """Time of the epoch."""
    batch_s: float
    """Time between two batches once all is under way."""
    compute_s: float
    """Of it compute of one batch."""
    copy_s: float
    """Of it copies and hand-over of one batch."""
    prep_s: float
    """Of it waiting for preparation: what would remain with all files in memory."""
    storage_s: float
    """Of it waiting for storage besides."""
    start_s: float
    """Time before the first batch, and start and end of workers."""
    limiter: str
    """`compute`, `preparation`, `storage` or `cores`: what sets `batch_s`."""

    batch_count: int
    """Batches of the epoch."""

    @property
    def stall_s(self) -> float:
        """Time of the epoch in which nothing is computed."""
        return self.epoch_s - self.batch_count * self.compute_s

    @property
    def stall_ratio(self) -> float:
        """Share of the epoch in which nothing is computed."""
        return self.stall_s / self.epoch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRow:
    """One number of workers: the first epoch, which finds nothing in memory, and later ones."""

    first: LoadedEpoch
    """First epoch."""
    later: LoadedEpoch
    """Each later epoch."""
    enough_ram_bytes: float
    """Least page cache from which storage no longer lengthens a later epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change, and what it saves of a later epoch."""

    name: str
    """What to change."""
    formula: str
    """How its time follows."""
    epoch_s: float
    """Time of a later epoch with it."""
    gain_s: float
    """What it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """An epoch replayed batch by batch with times that differ."""

    worker_count: int
    """Worker processes."""
    epoch_s: float
    """Time of the epoch."""
    stall_s: float
    """Time in which the trainer waits for a batch."""
    head_of_line_s: float
    """Of it time in which a later batch is ready already, which must wait for its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderAnswer:
    """What a loader lets an epoch take."""

    case: LoaderCase
    """The loader."""
    hit_ratio: float
    """Share of reads in later epochs that the page cache serves."""
    rows: tuple[LoaderRow, ...]
    """By number of workers, as asked."""
    enough_worker_count: int | None
    """First number of workers with which compute limits a later epoch; none where no number does."""
    why_not: str
    """Limiter that no number of workers removes; empty where there is none."""
    remedies: tuple[Remedy, ...]
    """Changes of the best row, the largest gain first."""
    replays: tuple[Replayed, ...] = ()
    """Epochs with times that differ from item to item, by number of workers; empty unless asked for."""
    notes: tuple[str, ...] = ()
    """Where the numbers come from."""

    @property
    def best(self) -> LoaderRow:
        """Row with the shortest later epoch; of equals the one with fewest workers."""
        return min(self.rows, key=lambda row: (round(row.later.epoch_s, 9), row.later.worker_count))

    def record(self) -> Mapping[str, Any]:
        """Return it as plain data, with what follows from its fields."""
        plain = asdict(self)
        for row, values in zip(self.rows, plain["rows"], strict=True):
            for name, epoch in (("first", row.first), ("later", row.later)):
                values[name] |= {"stall_s": epoch.stall_s, "stall_ratio": epoch.stall_ratio}
        best = self.best.later
        return {**plain, "best": {"worker_count": best.worker_count, "epoch_s": best.epoch_s}}
