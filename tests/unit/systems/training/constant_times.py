"""Constant durations and small rank programs for tests of training steps."""

from nearpeak.core.systems.duration import KernelDuration, Taken, TransferDuration
from nearpeak.core.systems.rank_program import RankCall, RankProgram, Transfer
from nearpeak.core.systems.stack import Stack
from nearpeak.core.work.case import Case
from nearpeak.systems.training.rank_lanes import Times

CASE = Case(op="gemm", phase="forward", axes=(("m", 8),), dtypes=(("dtype", "bf16"),))


def stack(**host: float | bool) -> Stack:
    """Return a stack without host time but for what is given."""
    return Stack(**{"name": "mine", "title": "Mine", "launch_s": 0.0, "source": "test", **host})


def times(kernel_s: float = 1.0, transfer_s: float = 1.0, sm_count: int = 0, **host: float | bool) -> Times:
    """Return equal times for all kernels, twice as long beside a collective that takes multiprocessors."""

    def kernel(_: Case, taken: Taken) -> KernelDuration:
        time_s = kernel_s * (2 if taken.is_any else 1)
        return KernelDuration(time_s, 0.9 * time_s, 1.1 * time_s, 0.5 * kernel_s, "gemm")

    def transfer(_: Transfer) -> TransferDuration:
        return TransferDuration(transfer_s, transfer_s, transfer_s, Taken(sm_count))

    return Times(kernel, transfer, stack(**host))


def product(count: int = 1, kernel_count: int = 1) -> RankCall:
    """Return calls of a kernel."""
    return RankCall(name="product", case=CASE, count=count, kernel_count=kernel_count)


def move(kind: str = "all_reduce", dim: str = "tp", size: int = 8, *, is_beside: bool = False) -> RankCall:
    """Return a call of a collective."""
    return RankCall(name=kind, transfer=Transfer(kind=kind, bytes=size, dim=dim), is_beside=is_beside)


def program(stage: int = 0, chunk: int = 0, **passes: tuple[RankCall, ...]) -> RankProgram:
    """Return a rank program of one kernel forward and two backward but for the given passes."""
    return RankProgram(
        **{
            "stage": stage, "chunk": chunk, "layer_count": 1, "forward": (product(),), "backward": (product(),),
            "weight": (product(),), "parameter_count": 8, **passes,
        }
    )  # fmt: skip
