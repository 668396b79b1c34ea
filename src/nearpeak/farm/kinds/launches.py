"""Job kind `launches`: one A B B A round of two project revisions, checked out, built and run."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.farm.job_process import FILES
from nearpeak.farm.kinds import Kind, Payload, need

_LAUNCHES, _BUILDS = 4, 2


def _check(payload: Payload) -> None:
    need(
        payload, "launches", repository=str, run=str, build=str, baseline=dict, candidate=dict, limit_s=(int, float)
    )  # fmt: skip
    for name in ("baseline", "candidate"):
        if not all(isinstance(text, str) for pair in payload[name].items() for text in pair):
            raise SpecError(f"launches: {name!r} is no mapping of texts; e.g. {{'commit': '1a2b3c'}}")
    if not payload["run"].strip():
        raise SpecError("launches: 'run' is empty; give the command that prints a time")
    if not (math.isfinite(payload["limit_s"]) and payload["limit_s"] > 0):
        raise SpecError(f"launches: 'limit_s' is {payload['limit_s']!r}; it must be more than 0")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.history.revision_builds import Workshop

    place, limit_s = Path(payload["repository"]), float(payload["limit_s"])
    with Workshop(place, payload["run"], payload["build"], limit_s=limit_s, keep=FILES) as workshop:
        round_launches = workshop.round(payload["baseline"], payload["candidate"])
    launches = [
        {"arm": launch.arm, "time_s": launch.time_s, "clock_hz": launch.clock_hz} for launch in round_launches or ()
    ]
    return {"launches": launches if round_launches else None}


KIND = Kind(
    name="launches", pool="device", check=_check, run=_run, memory_bytes=lambda _: None, cost_s=lambda _: 60.0,
    limit_s=lambda payload: (_LAUNCHES + _BUILDS) * float(payload["limit_s"]) + 60.0,
)  # fmt: skip
