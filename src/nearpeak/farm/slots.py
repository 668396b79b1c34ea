"""Batches of small jobs on a slot of a host's cores: forked from a warmed process, halved where one ends it."""

import json
import time
from collections.abc import Sequence

from nearpeak.farm.child import answer
from nearpeak.farm.kinds import KINDS
from nearpeak.farm.leases import Outcome
from nearpeak.farm.values import LeasedJob, text_of
from nearpeak.farm.watchdog import environment_for
from nearpeak.isolation import Ending, call_isolated
from nearpeak.measure.isolated import thread_variables


def answers(jobs: list[tuple[str, str]]) -> str:
    """Return the text of each job's result, its time and whether it failed, as JSON; runs in a process of its own."""
    found = []
    for kind, payload in jobs:
        begun_s = time.perf_counter()
        told = answer(kind, json.loads(payload))
        failed = "result" not in told
        text = text_of({"outcome": "failed", **told} if failed else told["result"])
        found.append((text, time.perf_counter() - begun_s, failed))
    return json.dumps(found)


def run_on_slot(slot: str, jobs: Sequence[LeasedJob]) -> list[Outcome]:
    """Return the outcome of each job.

    Limits are those of the first job of each kind. A job that ends its process takes the others with it, so that the
    batch is halved until only that job is left.
    """
    first = {one.kind: one.payload for one in reversed(jobs)}
    kinds = [KINDS[name] for name in first]
    begun_s = time.monotonic()
    limit_s = max(kind.limit_s(first[kind.name]) for kind in kinds)
    memory = [kind.memory_bytes(first[kind.name]) for kind in kinds]
    preload = dict.fromkeys(name for kind in kinds for name in kind.preload)
    ending = call_isolated(
        "nearpeak.farm.slots:answers",
        {"jobs": [(one.kind, one.text) for one in jobs]},
        timeout_s=limit_s,
        memory_bytes=None if None in memory else max(one for one in memory if one is not None),
        preload=(*preload, __name__),
        # Each slot has a warmed process of its own: the name of the slot tells them apart.
        variables=environment_for(slot, {**thread_variables(1), "NEARPEAK_FARM_SLOT": slot}),
        inherits=False,
    )
    if ending.verdict == "result":
        return [Outcome(text=text, time_s=time_s, failed=failed) for text, time_s, failed in json.loads(ending.value)]
    if len(jobs) == 1:
        return [_failure(ending, time.monotonic() - begun_s, limit_s)]
    middle = len(jobs) // 2
    return [*run_on_slot(slot, jobs[:middle]), *run_on_slot(slot, jobs[middle:])]


def _failure(ending: Ending, time_s: float, limit_s: float) -> Outcome:
    why = {
        "timeout": f"it did not end within {limit_s:g} s",
        "died": f"it ended its process ({ending.signal_name or ending.value})",
    }.get(ending.verdict, f"{ending.verdict}: {ending.value}")
    kind = "timeout" if ending.verdict == "timeout" else "crash"
    return Outcome(text=text_of({"outcome": kind, "message": why}), time_s=time_s, failed=True)
