"""Device, host and communication lanes of one rank: what a list of calls takes when each lane waits for the others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from nearpeak.core.systems.duration import WHOLE, KernelDuration, Taken, TransferDuration
from nearpeak.core.systems.rank_program import RECOMPUTED, RankCall, Transfer
from nearpeak.core.systems.stack import Stack
from nearpeak.core.work.case import Case
from nearpeak.systems.training.tensor_overlap import OverlappedCall, overlap_time

Key = TypeVar("Key", str, int)
KernelTimes = Callable[[Case, Taken], KernelDuration]
"""Gives the time of a case on what a collective beside it leaves of the device."""
TransferTimes = Callable[[Transfer], TransferDuration]
"""Gives the time of a collective."""
_PRODUCTS = ("gemm", "scaled_gemm", "grouped_gemm")
_REPLICAS = ("dp", "edp", "dp_shard", "dp_replica")
"""Dimensions whose collectives beside the queue are of parameters and gradients; the others are of activations."""
_NONE = TransferDuration(0.0, 0.0, 0.0)
"""No collective."""


class Times(NamedTuple):
    """What gives durations to the calls of a rank."""

    kernel: KernelTimes
    """Times of kernels."""
    transfer: TransferTimes
    """Times of collectives."""
    stack: Stack
    """Times of the host."""


class FamilyTime(NamedTuple):
    """Device time of the kernels whose errors go together."""

    time_s: float = 0.0
    """Sum of expected times."""
    low_s: float = 0.0
    """Sum of low ends."""
    high_s: float = 0.0
    """Sum of high ends."""

    def plus(self, other: "FamilyTime | KernelDuration | TransferDuration", count: float = 1.0) -> "FamilyTime":
        """Return the sums with `count` times another time."""
        return FamilyTime(
            self.time_s + count * other.time_s, self.low_s + count * other.low_s, self.high_s + count * other.high_s
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTime:
    """What the calls took."""

    time_s: float = 0.0
    """From the start to the end of the device's queue."""
    kernel_s: float = 0.0
    """Kernels on the whole device."""
    bound_s: float = 0.0
    """Their proved bounds."""
    host_s: float = 0.0
    """Device idle while the host launches."""
    launch_s: float = 0.0
    """Host busy."""
    exposed_s: Mapping[str, float] = field(default_factory=dict)
    """Collectives that no kernel hides, and what they slow kernels beside them down, by mesh dimension."""
    tail_s: float = 0.0
    """From the end of the device's queue to the end of the collectives beside it."""
    families: Mapping[str, FamilyTime] = field(default_factory=dict)
    """Kernels and collectives by family; collectives as `collective tp`."""
    distances_s: Mapping[int, float] = field(default_factory=dict)
    """Device time by steps from the measurements behind it."""
    flop: float = 0.0
    """Products of matrices."""

    def scaled(self, count: float) -> "LaneTime":
        """Return `count` times the whole, each run after the other."""
        return LaneTime(
            time_s=count * self.time_s, kernel_s=count * self.kernel_s, bound_s=count * self.bound_s,
            host_s=count * self.host_s, launch_s=count * self.launch_s,
            exposed_s={dim: count * time_s for dim, time_s in self.exposed_s.items()}, tail_s=self.tail_s,
            families={name: FamilyTime().plus(part, count) for name, part in self.families.items()},
            distances_s={steps: count * time_s for steps, time_s in self.distances_s.items()},
            flop=count * self.flop,
        )  # fmt: skip

    def joined(self, other: "LaneTime") -> "LaneTime":
        """Return both, one after the other."""
        families = dict(self.families)
        for name, part in other.families.items():
            families[name] = families.get(name, FamilyTime()).plus(part)
        return LaneTime(
            time_s=self.time_s + other.time_s, kernel_s=self.kernel_s + other.kernel_s,
            bound_s=self.bound_s + other.bound_s, host_s=self.host_s + other.host_s,
            launch_s=self.launch_s + other.launch_s, exposed_s=_sums(self.exposed_s, other.exposed_s),
            tail_s=other.tail_s, families=families, distances_s=_sums(self.distances_s, other.distances_s),
            flop=self.flop + other.flop,
        )  # fmt: skip


def _sums(first: Mapping[Key, float], second: Mapping[Key, float]) -> dict[Key, float]:
    sums = dict(first)
    for key, value in second.items():
        sums[key] = sums.get(key, 0.0) + value
    return sums


def run_lanes(calls: Iterable[RankCall | OverlappedCall], times: Times, *, is_backward: bool = False) -> LaneTime:
    """Return what `calls` take on one rank.

    Kernels run in order; each starts when the device is free and the host has launched it. The host runs ahead but for
    results that it reads. A collective in the queue
    is a kernel without a proved bound. Beside the queue:

    - a gather of parameters starts when the one before it is used (prefetch of one unit), and the kernels after it
      wait for it;
    - a reduction of gradients starts at its place in the queue, and nothing waits for it;
    - a tensor-parallel collective runs under the next product, and what comes after that product waits for it;
    - the hops of context parallelism run under attention, each hop's attention waits for its hop.

    Collectives of activations do not wait for those of parameters and gradients, which have streams of their own; on
    one tier each gets half of its rate meanwhile. Kernels beside a collective run on the multiprocessors and the rate
    of memory that it leaves.

    Args:
        is_backward: whether the calls are gradients, which the framework launches without the user's Python; calls of
            the forward pass that run once more are named `recomputed.…`.

    >>> from nearpeak.ops import case
    >>> one = RankCall(name="mlp", case=case("gemm", m=8, n=8, k=8, dtype="bf16"), count=3)
    >>> stack = Stack(name="mine", title="Mine", launch_s=2e-6, source="measured")
    >>> times = Times(lambda _, taken: KernelDuration(1e-6, 1e-6, 1e-6, 0.5e-6), lambda _: None, stack)
    >>> found = run_lanes([one], times)
    >>> f"{found.time_s * 1e6:.1f} {found.kernel_s * 1e6:.1f} {found.host_s * 1e6:.1f}"
    '7.0 3.0 4.0'
    """
    lanes = _Lanes(times, is_backward=is_backward)
    for call in calls:
        if isinstance(call, OverlappedCall):
            lanes.run_pair(call.product, call.transfer)
        elif call.case is not None:
            lanes.run_kernel(call, call.case)
        elif call.transfer is not None and call.is_beside:
            lanes.run_beside(call, call.transfer)
        elif call.transfer is not None:
            lanes.run_transfer(call, call.transfer)
        if isinstance(call, RankCall) and call.is_read:
            lanes.read()
    return lanes.total()


class _Totals:
    """Sums while the lanes run."""

    __slots__ = ("bound_s", "distances_s", "exposed_s", "families", "flop", "host_s", "kernel_s")

    def __init__(self, host_s: float) -> None:
        self.kernel_s = self.bound_s = self.flop = 0.0
        self.host_s = host_s
        self.exposed_s: dict[str, float] = {}
        self.families: dict[str, list[float]] = {}
        self.distances_s: dict[int, float] = {}

    def expose(self, dim: str, time_s: float) -> None:
        """Add exposed time of a dimension."""
        if time_s:
            self.exposed_s[dim] = self.exposed_s.get(dim, 0.0) + time_s


class _Lanes:
    """Clocks of the lanes."""

    __slots__ = (
        "_back_s", "_begun_s", "_comm_s", "_device_s", "_further_s", "_hops", "_host_s", "_launch_s", "_moved",
        "_moved_s", "_pending", "_queued_s", "_replicas", "_times", "_total", "_used_s",
    )  # fmt: skip

    def __init__(self, times: Times, *, is_backward: bool) -> None:
        self._times = times
        self._launch_s = 0.0 if times.stack.is_captured else times.stack.launch_s
        self._further_s = 0.0 if times.stack.is_captured else times.stack.further_launch_s
        self._back_s = self._launch_s * (times.stack.backward_ratio if is_backward else 1.0)
        self._device_s = self._host_s = 0.0 if not times.stack.is_captured else times.stack.graph_launch_s
        self._total = _Totals(self._device_s)
        self._comm_s = self._moved_s = self._used_s = self._queued_s = self._device_s
        self._begun_s = -1.0  # start of the last reduction beside the queue
        self._replicas = self._moved = _NONE, "dp"  # last collective of each lane with its dimension
        self._pending: list[tuple[float, str, str]] = []  # end, dimension, product that runs under it
        self._hops: tuple[float, float] | None = None  # time of one hop, end of the last

    def _launch(self, call: RankCall) -> float:
        """Return the host time of one call: its own, and the driver's for each further kernel."""
        each_s = self._launch_s if call.name.startswith(RECOMPUTED) else self._back_s
        return each_s + self._further_s * (call.kernel_count - 1)

    def _wait_for_host(self, call: RankCall, each_s: float) -> float:
        """Return when a call ends at the earliest for the host's sake; the device waits for its first launch."""
        first_s = self._launch(call)
        if self._host_s + first_s > self._device_s:
            self._total.host_s += self._host_s + first_s - self._device_s
            self._device_s = self._host_s + first_s
        self._host_s += first_s * call.count
        return self._host_s + each_s

    def _occupy(self, family: str, count: int, duration: KernelDuration | TransferDuration) -> None:
        """Add device time to the sums by family and by provenance."""
        total = self._total
        part = total.families.get(family)
        if part is None:
            part = total.families[family] = [0.0, 0.0, 0.0]
        part[0] += count * duration.time_s
        part[1] += count * duration.low_s
        part[2] += count * duration.high_s
        steps = duration.distance_count
        total.distances_s[steps] = total.distances_s.get(steps, 0.0) + count * duration.time_s

    def read(self) -> None:
        """Let the host wait for the device, which finds its queue empty afterwards."""
        self._host_s = max(self._host_s, self._device_s)

    def run_kernel(self, call: RankCall, case: Case) -> None:
        """Run a kernel in the queue."""
        duration, total, count = self._times.kernel(case, WHOLE), self._total, call.count
        self._wait_for_transfers(call.name, case.op)
        until_s = self._wait_for_host(call, duration.time_s)
        start_s, alone_s = self._device_s, count * duration.time_s
        busy_s = alone_s
        until, (beside, dim) = max((self._comm_s, self._replicas), (self._moved_s, self._moved))
        if beside.taken.is_any and until > start_s:
            slowed_s, window_s = count * self._times.kernel(case, beside.taken).time_s, until - start_s
            # slower while the collective runs, at full speed afterwards
            busy_s = slowed_s if slowed_s <= window_s else window_s + (1 - window_s / slowed_s) * alone_s
            total.expose(dim, busy_s - alone_s)
        self._device_s = max(start_s + busy_s, until_s)
        total.host_s += self._device_s - start_s - busy_s
        if self._hops and call.name.endswith(".hop"):
            self._wait(self._hops[1] + duration.time_s, "cp")  # the last hop's attention follows the last hop
            self._hops = None
        total.kernel_s += alone_s
        total.bound_s += count * duration.bound_s
        total.flop += count * duration.flop
        self._occupy(duration.family, count, duration)

    def _wait_for_transfers(self, name: str, op: str) -> None:
        """Let the device wait for collectives of activations whose time to hide is over."""
        if self._hops and name.endswith(".hop"):
            self._wait(self._hops[0], "cp")
        if not self._pending:
            return
        left = []
        for end_s, dim, product in self._pending:
            if not product:
                left.append((end_s, dim, name if op in _PRODUCTS else ""))
            elif name.startswith(f"{product}."):
                left.append((end_s, dim, product))
            else:
                self._wait(end_s, dim)
        self._pending = left

    def _wait(self, until_s: float, dim: str) -> None:
        if until_s > self._device_s:
            self._total.expose(dim, until_s - self._device_s)
            self._device_s = until_s

    def run_transfer(self, call: RankCall, transfer: Transfer) -> None:
        """Run a collective in the queue."""
        duration = self._times.transfer(transfer)
        until_s = self._wait_for_host(call, duration.time_s)
        start_s, busy_s = self._device_s, call.count * duration.time_s
        self._device_s = max(start_s + busy_s, until_s)
        self._total.host_s += self._device_s - start_s - busy_s
        self._total.expose(transfer.dim, busy_s)
        self._occupy(f"collective {transfer.dim}", call.count, duration)

    def run_pair(self, product: RankCall, move: RankCall) -> None:
        """Run a product and its collective in pieces, the collective's exposed part where it cannot be hidden."""
        case, transfer = product.case, move.transfer
        assert case is not None
        assert transfer is not None
        together_s, _ = overlap_time(case, transfer, self._times.kernel, self._times.transfer)
        duration, alone_s = self._times.transfer(transfer), self._times.kernel(case, WHOLE).time_s
        left_s = max(together_s - alone_s, 0.0)
        if transfer.kind != "all_gather":
            self.run_kernel(product, case)
        self._host_s += self._launch(move)
        self._device_s += left_s
        self._total.expose(transfer.dim, left_s)
        if transfer.kind == "all_gather":
            self.run_kernel(product, case)
        share = left_s / duration.time_s if duration.time_s else 0.0
        shown = TransferDuration(left_s, share * duration.low_s, share * duration.high_s)
        self._occupy(f"collective {transfer.dim}", 1, shown._replace(distance_count=duration.distance_count))

    def run_beside(self, call: RankCall, transfer: Transfer) -> None:
        """Run a collective beside the queue."""
        duration, dim = self._times.transfer(transfer), transfer.dim
        busy_s = call.count * duration.time_s
        self._host_s += self._launch(call) * call.count
        self._occupy(f"collective {dim}", call.count, duration)
        if dim not in _REPLICAS:
            self._move(call.count, duration, dim)
            return
        if transfer.kind in ("all_gather", "broadcast"):
            self._gather(busy_s, dim)
        else:
            start_s = max(self._comm_s, self._device_s, self._host_s)
            self._begun_s, self._comm_s = start_s, start_s + busy_s
        self._replicas = duration, dim

    def _move(self, count: int, duration: TransferDuration, dim: str) -> None:
        """Exchange activations beside what moves parameters and gradients."""
        start_s, busy_s = max(self._moved_s, self._device_s, self._host_s), count * duration.time_s
        shared_s = 0.0
        if duration.tier == self._replicas[0].tier:
            shared_s = min(max(self._comm_s - start_s, 0.0), busy_s)
        self._comm_s += shared_s
        self._moved_s = start_s + busy_s + shared_s
        self._moved = duration, dim
        if dim == "cp":
            first_s = self._hops[0] if self._hops else start_s + (busy_s + shared_s) / count
            self._hops = first_s, self._moved_s
        else:
            self._pending.append((self._moved_s, dim, ""))

    def _gather(self, busy_s: float, dim: str) -> None:
        """Gather parameters, asked for when the gather before was used, ahead of what has been asked for since."""
        start_s, since_s = max(self._used_s, self._queued_s), self._begun_s
        stop_s = start_s + busy_s
        shared_s = max(min(stop_s, self._comm_s) - max(start_s, since_s), 0.0) if since_s >= self._used_s else 0.0
        self._comm_s = max(self._comm_s, stop_s) + shared_s
        self._wait(stop_s, dim)
        self._used_s, self._queued_s = self._device_s, self._comm_s

    def total(self) -> LaneTime:
        """Return the sums, once all collectives of activations have ended."""
        total = self._total
        for end_s, dim, _ in self._pending:
            self._wait(end_s, dim)
        return LaneTime(
            time_s=self._device_s, kernel_s=total.kernel_s, bound_s=total.bound_s, host_s=total.host_s,
            launch_s=self._host_s, exposed_s=total.exposed_s, tail_s=max(self._comm_s - self._device_s, 0.0),
            families={name: FamilyTime(*part) for name, part in total.families.items()},
            distances_s=total.distances_s, flop=total.flop,
        )  # fmt: skip
