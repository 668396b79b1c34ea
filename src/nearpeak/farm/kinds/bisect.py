"""Job kind `bisect`: searches the commit behind a slowdown, all comparisons under one lease on one device."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.farm.job_process import FILES
from nearpeak.farm.kinds import Kind, Payload, need

LONGEST_S = 6 * 3600.0
"""Wall time of a whole search."""


def _check(payload: Payload) -> None:
    need(payload, "bisect", repository=str, run=str, build=(str, type(None)), good=str, bad=str, limit_s=(int, float))
    for name in ("repository", "run", "good", "bad"):
        if not payload[name].strip() or payload[name].startswith("-"):
            raise SpecError(f"bisect: {name!r} is {payload[name][:40]!r}; give a repository, a command, two commits")
    if not (math.isfinite(payload["limit_s"]) and payload["limit_s"] > 0):
        raise SpecError(f"bisect: 'limit_s' is {payload['limit_s']!r}; it must be more than 0")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.bisection.commit_search import commit_axis, searched
    from nearpeak.history.revision_builds import Workshop

    place, limit_s = Path(payload["repository"]), float(payload["limit_s"])
    axis = commit_axis(place, payload["good"], payload["bad"])
    with Workshop(place, payload["run"], payload.get("build") or "", limit_s=limit_s, keep=FILES) as workshop:
        search = searched([axis], workshop)
    result, ends = search.found, search.ends.judgement
    return {
        "verdict": ends.verdict, "time_ratio": ends.time_ratio, "outcome": result.outcome if result else "no slowdown",
        "step_count": len(result.steps) if result else 0,
        "culprits": [{"before": culprit.before, "after": culprit.after, "probability_ratio": culprit.probability_ratio,
                      "time_ratio": culprit.time_ratio} for culprit in (result.culprits if result else ())],
    }  # fmt: skip


KIND = Kind(
    name="bisect", pool="device", check=_check, run=_run, memory_bytes=lambda _: None, cost_s=lambda _: 600.0,
    limit_s=lambda _: LONGEST_S,
)  # fmt: skip
