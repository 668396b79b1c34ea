"""Whether the clock of a runner can be trusted: what it says of nothing, of twice the work, and of a known delay."""

import statistics
from collections.abc import Callable
from typing import Any

from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Timer
from nearpeak.measurement.runners import RUNNERS
from nearpeak.ops import case

COUNTS = (1, 10, 100)
SPINS = (10**6, 2 * 10**6, 4 * 10**6)
"""Clock cycles for which a GPU is made to wait."""
ON_HOST, ON_DEVICE = 2**20, 2**25
"""Elements of the case that is called."""
_REPEATS = 15


def facts(runner: str) -> dict[str, Any]:
    """Return what the clock of `runner` says, in seconds; to be called in a process of its own."""
    name, _, argument = runner.partition(":")
    backend = RUNNERS[name](argument, Timing(cache="hot"))
    timer = backend.timer()
    # On a GPU, calls longer than their launch: otherwise a row of a hundred tells what the host takes.
    count = ON_DEVICE if timer.mode != "host" else ON_HOST
    one = case("elementwise", function="add", elements=count, b=count, dtype="fp32")
    prepared = backend.prepare(one, drawn(one))
    run = prepared.runs[0]
    for _ in range(20):
        timer.read(run, 1)
    rounds = [{count: timer.read(run, count) for count in COUNTS} for _ in range(_REPEATS)]
    readings = {count: [one[count] for one in rounds] for count in COUNTS}  # in turn, so that load meets all alike
    times = {count: [reading.time_s for reading in found] for count, found in readings.items()}
    return {
        "name": timer.name, "resolution_s": timer.resolution_s,
        "nothing_s": min(timer.read(lambda: None, 1).time_s for _ in range(_REPEATS)),
        "call_s": {str(count): min(found) / count for count, found in times.items()},
        "spread_ratio": statistics.stdev(times[100]) / statistics.fmean(times[100]),
        "beyond_host_count": sum(
            one.time_s > 1.05 * one.host_s + timer.resolution_s for found in readings.values() for one in found
        ),
        "spin_s": _spins(timer),
    }  # fmt: skip


def _spins(timer: Timer) -> dict[str, float]:
    """Return the shortest time of each known delay; empty where the device cannot be made to wait."""
    if timer.mode != "device":
        return {}
    import torch

    sleep: Callable[[int], None] | None = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return {}
    return {str(cycles): min(timer.read(lambda n=cycles: sleep(n), 1).time_s for _ in range(5)) for cycles in SPINS}


def faults(found: dict[str, Any]) -> list[str]:
    """Return what speaks against the clock.

    >>> good = {"call_s": {"10": 1e-5, "100": 1e-5}, "nothing_s": 1e-7, "beyond_host_count": 0, "spin_s": {}}
    >>> faults(good), faults(good | {"nothing_s": 1.0, "beyond_host_count": 2})
    ([], ['timer: nothing takes 1 s', 'timer: 2 times are longer than those of the host'])
    """
    said = []
    ratio = found["call_s"]["100"] / found["call_s"]["10"]
    if not 1 / 3 <= ratio <= 3:
        said.append(f"timer: a call of a hundred takes {ratio:.2f} times one of ten")
    if found["nothing_s"] > 1e-4:
        said.append(f"timer: nothing takes {found['nothing_s']:g} s")
    if found["beyond_host_count"]:
        said.append(f"timer: {found['beyond_host_count']} times are longer than those of the host")
    spins = [found["spin_s"][str(cycles)] for cycles in SPINS if found["spin_s"]]
    if spins and not 1.9 <= (spins[2] - spins[1]) / (spins[1] - spins[0]) <= 2.1:
        said.append(f"timer: delays of 1, 2 and 4 million cycles take {', '.join(f'{one:.4g} s' for one in spins)}")
    return said
