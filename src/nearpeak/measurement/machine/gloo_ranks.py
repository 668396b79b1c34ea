"""Ranks of torch.distributed on this machine: own processes that meet over gloo on the loopback interface."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.process_tree import safe_imports
from nearpeak.base.peer_user import foreign_peer
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.errors import MeasureError, SpecError

MOST_RANKS = 16
"""Ranks beyond which one machine measures its processors' queues and not a fabric."""


def run_ranks(work: Callable[..., Any], rank_count: int, *arguments: Any, timeout_s: float = 300.0) -> list[Any]:
    """Return what each rank's `work(rank, rank_count, *arguments)` returns, in the order of the ranks.

    Each rank is a process of its own with one thread, and the default group is theirs.

    Args:
        work: a function of a module, as other processes import it.

    Raises:
        MeasureError: a rank failed, or they took longer; the others are ended.
        MissingExtraError: PyTorch is not installed.
    """
    if not 2 <= rank_count <= MOST_RANKS:
        raise SpecError(f"ranks: {rank_count} is not between 2 and {MOST_RANKS}, the processes of one machine")
    torch_or_refusal("ranks over gloo")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="nearpeak-ranks-") as folder:
        processes, ends = [], []
        try:
            for rank in range(rank_count):
                here, there = context.Pipe(duplex=False)
                process = context.Process(
                    target=_serve, args=(there, work, rank, rank_count, f"{folder}/meeting", timeout_s, arguments),
                    daemon=True,
                )  # fmt: skip
                with safe_imports():
                    process.start()
                there.close()
                processes.append(process)
                ends.append(here)
            return _answers(ends, timeout_s)
        finally:
            for process in processes:
                process.join(timeout=2.0)
                if process.is_alive():
                    process.kill()
                    process.join()


def _answers(ends: list[Connection], timeout_s: float) -> list[Any]:
    """Return the answers of all ranks, or raise the first fault."""
    answers: dict[int, Any] = {}
    deadline = time.monotonic() + timeout_s
    while len(answers) < len(ends):
        waiting = {rank: end for rank, end in enumerate(ends) if rank not in answers}
        ready = wait(list(waiting.values()), timeout=max(deadline - time.monotonic(), 0.0))
        if not ready:
            raise MeasureError(f"ranks {', '.join(map(str, waiting))}: gave no answer within {timeout_s:g} s")
        for rank, end in waiting.items():
            if end in ready:
                answers[rank] = _answer(rank, end)
    return [answers[rank] for rank in range(len(ends))]


def _answer(rank: int, end: Connection) -> Any:
    """Return what a rank has sent, or raise its fault."""
    try:
        fault, answer = end.recv()
    except EOFError:
        raise MeasureError(f"rank {rank}: its process ended without an answer") from None
    if fault:
        raise MeasureError(f"rank {rank}: {fault}")
    return answer


def _serve(
    end: Connection, work: Callable[..., Any], rank: int, rank_count: int, meeting: str, timeout_s: float,
    arguments: tuple[Any, ...],
) -> None:  # fmt: skip
    """Join the group, do the work and send its result, or the fault in one line."""
    if Path("/sys/class/net/lo").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch

    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=rank_count,
            timeout=timedelta(seconds=timeout_s),
        )  # fmt: skip
        torch.distributed.barrier()  # all connections stand
        _refuse_others()
        answer = work(rank, rank_count, *arguments)
        _refuse_others()
        end.send(("", answer))
        torch.distributed.barrier()
    except Exception as error:  # the parent process reports whatever it is
        end.send((f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", None))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _refuse_others() -> None:
    """Raise where another user takes part: gloo listens on loopback, and asks who connects for no secret."""
    uid = foreign_peer()
    if uid is not None:
        raise MeasureError(
            f"user {uid} is connected to a port of this rank, process {os.getpid()} on 127.0.0.1, where only the other "
            "ranks may be: what it measured is not used; measure again when no process of that user connects, or in a "
            "container whose network is its own"
        )
