"""Test suites built from models, files, sweeps and operator rules, weighted by bound times on a target."""

from collections.abc import Callable, Sequence
from pathlib import Path

from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.suite import Suite
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.suites.directed_cases import directed_suite
from nearpeak.suites.run_plan import Plan, planned
from nearpeak.suites.suite_merge import merged, suite_of
from nearpeak.suites.suite_names import names_suite, read_suite

SAMPLING_S, CALLS_RUN = 0.4, 10
"""What running a case costs beyond its calls: samples by the usual budget and a process of its own; and how many calls
are made however long one is: warm-up, samples, checks."""
LAUNCH_S = 2e-6
"""Time of a launch on devices that state no launch floor, so that no case is free."""


def suite(
    sources: Sequence[str | Path | Workload | Suite],
    *,
    name: str = "suite",
    sweeps: Sequence[str] = (),
    where: Sequence[str] = (),
    directed: bool = False,
    operators: Sequence[str] = (),
    capture: Callable[[str], Workload] | None = None,
) -> Suite:
    """Return the suite of models, files, workloads, other suites, sweeps and rules, each case once.

    Args:
        sources: what `nearpeak.capture` takes, suite files, names of ready-made suites, workloads, suites.
        sweeps: lines such as `op=gemm dtype=bf16 m=1024:4096:256 k=pow2(64,8192) n=4096`.
        where: constraints that hold for every sweep.
        directed: add the directed cases of every operator that the sources call.
        operators: add the directed cases of these operators.
        capture: how a source is captured; nearpeak.capture by default.

    >>> found = suite([], sweeps=["op=fill dtype=bf16 elements=1:4"], operators=["softmax"])
    >>> [one.name for one in found.sources]
    ['sweep 1', 'directed softmax']
    """
    parts = [_part(entry, capture) for entry in sources] + list(_swept(sweeps, where))
    wanted = dict.fromkeys(operators)
    if directed:
        wanted |= dict.fromkeys(sorted({entry.case.op for part in parts for entry in part.cases}))
    return merged([*parts, *map(directed_suite, wanted)], name)


def times_of(cases: Sequence[Case], target: str | Target) -> tuple[dict[Case, float], str]:
    """Return the least time of one call of each case with a launch of its own, and in words what time that is.

    Cases that the target has no rate for are left out.

    >>> from nearpeak.ops import case
    >>> list(times_of([case("gemm", m=4096, n=4096, k=4096, dtype="bf16")], "h100_sxm")[0].values())[0] > 1e-4
    True
    """
    from nearpeak.api import questions
    from nearpeak.bounds.bound_table import answered_table
    from nearpeak.ops.shared.tables.case_table import table_of_cases

    device = questions.target(target) if isinstance(target, str) else target
    launch_s = device.launch_floor_s or LAUNCH_S
    table = answered_table(table_of_cases(cases), device, Policy()) if cases else None
    rows = zip(cases, table.bound_s.tolist(), strict=True) if table is not None else ()
    refused = table.refused if table is not None else {}
    times = {case: bound_s + launch_s for row, (case, bound_s) in enumerate(rows) if row not in refused}
    return times, f"bound on {device.name} plus a launch of {launch_s * 1e6:.3g} us"


def cheapest(
    suite: Suite, target: str | Target, *, goal_ratio: float, identity: str = "saturated", budget_s: float | None = None
) -> Plan:
    """Return the cheapest choice of cases that stand for `goal_ratio` of the FLOP-weighted calls.

    Args:
        budget_s: seconds that 'nearpeak measure' may take on the target; the cost of a case is then that of running
            it, not of one call.

    >>> plan = cheapest(suite([], sweeps=["op=fill dtype=bf16 elements=8192,4096"]), "h100_sxm", goal_ratio=0.9)
    >>> [dict(one.case.axes)["elements"] for one in plan.suite.chosen]
    [4096]
    """
    times, words = times_of([entry.case for entry in suite.cases], target)
    if budget_s is not None:
        costs = {case: SAMPLING_S + CALLS_RUN * time_s for case, time_s in times.items()}
        words = f"{SAMPLING_S:g} s and {CALLS_RUN} times the {words}"
        return planned(suite, costs, goal_ratio=goal_ratio, time=words, identity=identity, budget_s=budget_s)
    return planned(suite, times, goal_ratio=goal_ratio, time=words, identity=identity)


def _part(source: str | Path | Workload | Suite, capture: Callable[[str], Workload] | None) -> Suite:
    if isinstance(source, Suite):
        return source
    if isinstance(source, Workload):
        return suite_of(source)
    if names_suite(source):
        return read_suite(source)
    from nearpeak.api import questions

    return suite_of((capture or questions.capture)(str(source)))


def _swept(sweeps: Sequence[str], where: Sequence[str]) -> list[Suite]:
    from nearpeak.frontends.files.sweep import swept

    if where and not sweeps:
        raise SpecError(f"where {where[0]!r}: constrains sweeps, and there is none; a file of sweeps states its own")
    return [suite_of(swept(f"sweep {number}", line, where)) for number, line in enumerate(sweeps, start=1)]
