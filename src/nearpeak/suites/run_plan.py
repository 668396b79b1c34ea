"""Choice of the cases to run: the cheapest set that covers a share of use and all directed obligations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nearpeak.core.answers.suite import Suite
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.suites.case_identity import IDENTITIES, identify
from nearpeak.suites.case_weights import fleet_of, weights_of
from nearpeak.suites.directed_cases import met_by
from nearpeak.suites.weighted_cover import Pick, greedy_cover


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite with some of its cases chosen."""

    suite: Suite
    """All cases; those that are not needed are left out of the run but stay in what coverage is a share of."""
    picks: tuple[Pick, ...]
    """Choices for use, in order, with what each adds; the first are one case of each operator, format and phase."""
    cover_s: float
    """Time of one call of every choice for use; directed cases that stand for an operator, format or phase are some."""
    run_s: float
    """Time of one call of every chosen case, those that meet obligations alone included."""
    called_s: float
    """Time of one call of every chosen case that a workload calls."""
    use_s: float
    """Time of one call of every case that a workload calls."""

    @property
    def called_ratio(self) -> float:
        """Time of the chosen cases of workloads over that of all of them; 0 where no workload calls any."""
        return self.called_s / self.use_s if self.use_s else 0.0


def planned(
    suite: Suite,
    cost_s: Mapping[Case, float],
    *,
    goal_ratio: float,
    time: str,
    identity: str = "saturated",
    budget_s: float = math.inf,
) -> Plan:
    """Return the cheapest choice that stands for `goal_ratio` of FLOP-weighted calls and meets the same obligations.

    Workloads count alike. One case of each operator, format and phase is always kept, the cheapest, directed or not.

    Args:
        cost_s: seconds per call, or per case that is run; a case without is never chosen.
        budget_s: most that all chosen cases may cost: use comes first, then obligations.
        time: where the seconds come from, for people.

    Raises:
        SpecError: identity or goal is not known, or no case has a time.
    """
    if identity not in IDENTITIES:
        raise SpecError(f"identity {identity!r}: is not one of {', '.join(IDENTITIES)}")
    cases = {suite_case.case.digest: suite_case.case for suite_case in suite.cases if suite_case.case in cost_s}
    if not cases:
        raise SpecError(f"{suite.name}: no case has a time ({time}); name another target")
    costs = {digest: cost_s[case] for digest, case in cases.items()}
    weights: dict[object, float] = {}
    for case, weight in fleet_of(weights_of(suite, "flop")).items():
        key = identify(case, identity)
        weights[key] = weights.get(key, 0.0) + weight
    known = {digest: (identify(case, identity),) for digest, case in cases.items()}
    cheapest: dict[object, str] = {}
    for digest in sorted(cases, key=lambda digest: (costs[digest], digest)):
        cheapest.setdefault((cases[digest].op, cases[digest].phase, cases[digest].dtypes[:1]), digest)
    picks = greedy_cover(known, weights, costs, goal_ratio, cheapest.values(), budget_s)
    chosen = _obliged(suite, cases, costs, [pick.key for pick in picks], budget_s)
    run_s, cover_s = sum(costs[digest] for digest in sorted(chosen)), picks[-1].spent_s
    called = {
        suite_case.case.digest: costs[suite_case.case.digest]
        for suite_case in suite.cases
        if suite_case.call_count and suite_case.case in cost_s
    }
    called_s, use_s = sum(cost for digest, cost in called.items() if digest in chosen), sum(called.values())
    plan = {
        "goal": f"{goal_ratio:.4g} of FLOP-weighted calls, workloads alike", "identity": identity, "time": time,
        "reached": f"{picks[-1].covered_ratio:.6f}", "time of chosen cases of workloads": f"{called_s:.6e} s",
        "time of all chosen cases": f"{run_s:.6e} s", "time of all cases of workloads": f"{use_s:.6e} s",
    }  # fmt: skip
    if math.isfinite(budget_s):
        plan["budget"] = f"{budget_s:g} s"
    rows = tuple(replace(suite_case, chosen=suite_case.case.digest in chosen) for suite_case in suite.cases)
    times = {"cover_s": cover_s, "run_s": run_s, "called_s": called_s, "use_s": use_s}
    return Plan(suite=replace(suite, cases=rows, plan=plan), picks=picks, **times)


def _obliged(
    suite: Suite, cases: Mapping[str, Case], costs: Mapping[str, float], first: list[str], budget_s: float
) -> frozenset[str]:
    """Return `first` and the cheapest directed cases that meet every obligation that directed cases of `suite` meet."""
    directed = [
        entry.case for entry in suite.cases
        if entry.case.digest in cases and any(why.kind != "usecase" for why in entry.why)
    ]  # fmt: skip
    if not directed:
        return frozenset(first)
    wanted = dict.fromkeys(sorted(frozenset[str]().union(*map(met_by, directed))), 1.0)
    candidates = {digest: sorted(met_by(cases[digest])) for digest in {*first, *(case.digest for case in directed)}}
    return frozenset(pick.key for pick in greedy_cover(candidates, wanted, costs, 1.0, first, budget_s))
