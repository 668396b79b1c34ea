"""Batches of small CPU jobs on a core slot: forked from a preloaded process, bisected when a job crashes it."""

import json
import time
from collections.abc import Callable, Sequence

from nearpeak.base.isolation import Ending, call_isolated
from nearpeak.errors import MeasureError
from nearpeak.farm.job_process import answer
from nearpeak.farm.jobs import LeasedJob, Outcome, text_of
from nearpeak.farm.kinds import KINDS
from nearpeak.farm.process_watchdog import environment_for
from nearpeak.measurement.isolated_measurement import thread_variables

ENOUGH_S = 300.0
"""Time after which a process returns its answers; remaining jobs go to another process.

Each process predicts its tables of step times anew, up to ten CPU seconds for a grid of services: a minute was too
short to be worth that where eight slots share two cores.
"""


def answers(jobs: list[tuple[str, str]], enough_s: float) -> str:
    """Return the text of each job's result, its time and whether it failed, as JSON; runs in a process of its own.

    Args:
        enough_s: time after which no further job starts; the answers so far are returned.
    """
    results, until_s = list[tuple[str, float, bool]](), time.perf_counter() + enough_s
    for kind, payload in jobs:
        begun_s = time.perf_counter()
        if results and begun_s > until_s:
            break
        result = answer(kind, json.loads(payload))
        failed = "result" not in result
        text = text_of({"outcome": "failed", **result} if failed else result["result"])
        results.append((text, time.perf_counter() - begun_s, failed))
    return json.dumps(results)


def run_on_slot(slot: str, jobs: Sequence[LeasedJob], is_stopped: Callable[[], bool] = lambda: False) -> list[Outcome]:
    """Return the outcome of each job.

    A process takes as many jobs as it does in five minutes, so that each job has the whole of its own limit; the
    memory is that of the first job of each kind. A job that ends its process takes the others with it, so that they
    are halved until only that job is left.

    Args:
        is_stopped: says that the lease is lost, between two processes.

    Raises:
        MeasureError: the lease was lost.
    """
    outcomes: list[Outcome] = []
    parts = [jobs]
    while parts:
        if is_stopped():
            raise MeasureError("the lease was lost while it ran")
        part = parts.pop()
        begun_s, (limit_s, ending) = time.monotonic(), _called(slot, part)
        if ending.verdict == "result":
            results = json.loads(ending.value)
            outcomes += [Outcome(text=text, time_s=time_s, failed=failed) for text, time_s, failed in results]
            parts += [part[len(results) :]] if len(results) < len(part) else []
        elif len(part) == 1:
            outcomes.append(_failure(ending, time.monotonic() - begun_s, limit_s))
        else:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return outcomes


def _called(slot: str, jobs: Sequence[LeasedJob]) -> tuple[float, Ending]:
    """Return the longest time that one of the jobs may take, and how a process that runs them ended."""
    first = {item.kind: item.payload for item in reversed(jobs)}
    kinds = [KINDS[name] for name in first]
    limit_s = max(kind.limit_s(first[kind.name]) for kind in kinds)
    memory = [kind.memory_bytes(first[kind.name]) for kind in kinds]
    preload = dict.fromkeys(name for kind in kinds for name in kind.preload)
    return limit_s, call_isolated(
        "nearpeak.farm.core_slots:answers",
        {"jobs": [(item.kind, item.text) for item in jobs], "enough_s": ENOUGH_S},
        timeout_s=limit_s if len(jobs) == 1 else ENOUGH_S + limit_s,
        memory_bytes=None if None in memory else max(item for item in memory if item is not None),
        preload=(*preload, __name__),
        # Each slot has a warmed process of its own: the name of the slot tells them apart.
        variables=environment_for(slot, {**thread_variables(1), "NEARPEAK_FARM_SLOT": slot}),
        inherits=False,
    )


def _failure(ending: Ending, time_s: float, limit_s: float) -> Outcome:
    why = {
        "timeout": f"it did not end within {limit_s:g} s",
        "died": f"it ended its process ({ending.signal_name or ending.value})",
    }.get(ending.verdict, f"{ending.verdict}: {ending.value}")
    kind = "timeout" if ending.verdict == "timeout" else "crash"
    return Outcome(text=text_of({"outcome": kind, "message": why}), time_s=time_s, failed=True)
