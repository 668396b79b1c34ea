"""Coverage of a suite: share of use by currency and identity, directed obligations, and mutation-weighted values."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from nearpeak.core.answers.suite import Suite
from nearpeak.core.answers.suite_coverage import DirectedShare, SuiteCoverage, UseShare
from nearpeak.core.work.case import Case
from nearpeak.suites.case_identity import IDENTITIES, identify
from nearpeak.suites.case_weights import CURRENCIES, Weights, weights_of
from nearpeak.suites.directed_cases import met_by, obligations_of

FLEET, ALL = "fleet", "all"
Scores = Mapping[str, float]
"""Mutation score, 0 to 1, by digest of the case."""


def coverage_of(
    suite: Suite, *, time_s: Mapping[Case, float] | None = None, scores: Scores | None = None,
    passed: Set[str] | None = None,
) -> SuiteCoverage:  # fmt: skip
    """Return the share of use and of obligations that the chosen cases of `suite` cover, and what of it can fail.

    Args:
        time_s: seconds per call of each case; without it there are no shares of time, and where it lacks a case of a
            workload that workload's share is not known.
        scores: mutation score by digest; a case without one counts 0 in the effective numbers.
        passed: digests of cases that ran and passed; by default all chosen ones count, as planned.

    >>> from nearpeak.suites.directed_cases import directed_suite
    >>> coverage_of(directed_suite("softmax")).directed[-1].covered_ratio
    1.0
    """
    run = [entry.case for entry in suite.chosen if passed is None or entry.case.digest in passed]
    untimed = set() if time_s is None else {entry.case for entry in suite.cases if entry.case not in time_s}
    use: list[UseShare] = []
    for currency in CURRENCIES if time_s is not None else CURRENCIES[:2]:
        weights = weights_of(suite, currency, time_s)
        lost = {entry.name: sum(entry.uncovered.values()) for entry in suite.sources} if currency == "calls" else {}
        for identity in IDENTITIES:
            best = _best({case: (identify(case, identity),) for case in run}, scores)
            unknown = untimed if currency == "time" else set()
            shares = _shares(weights, lost, unknown, best, identity, currency)
            use += shares if scores is not None else (replace(entry, effective_ratio=None) for entry in shares)
    uncovered: dict[str, int] = {}
    for source in suite.sources:
        for name, count in source.uncovered.items():
            uncovered[name] = uncovered.get(name, 0) + count
    return SuiteCoverage(
        use=tuple(use), directed=tuple(_directed(suite, run, scores)), uncovered=uncovered,
        scored_count=None if scores is None else sum(case.digest in scores for case in run),
        chosen_count=len(run), case_count=len(suite.cases),
        untimed_count=len(untimed),
    )  # fmt: skip


def _best(covers: Mapping[Case, Iterable[object]], scores: Scores | None) -> dict[object, float]:
    """Return the parts that the cases cover, each with the best score of a case that covers it."""
    scores_by_part: dict[object, float] = {}
    for case, parts in covers.items():
        score = (scores or {}).get(case.digest, 0.0)
        for part in parts:
            scores_by_part[part] = max(scores_by_part.get(part, 0.0), score)
    return scores_by_part


def _shares(
    weights: Weights, lost: Mapping[str, int], untimed: Set[Case], best: Mapping[object, float], identity: str,
    currency: str,
) -> Iterator[UseShare]:  # fmt: skip
    """Yield the share of each workload and of the fleet under one currency and identity.

    A share of which a part has no known weight is not known, and neither is the fleet's.
    """
    ratios: list[tuple[float, float]] = []
    for name, row in weights.items():
        total = sum(row.values()) + lost.get(name, 0)
        covered = {case: weight for case, weight in row.items() if identify(case, identity) in best}
        scored = sum(weight * best[identify(case, identity)] for case, weight in covered.items())
        count = len(untimed & row.keys())
        pair = (sum(covered.values()) / total, scored / total) if total and not count else None
        ratios += [pair] if pair else []
        yield _share(name, currency, identity, pair, count)
    used = set[Case]().union(*weights.values())
    count = len(untimed & used)
    sums = (sum(a for a, _ in ratios), sum(b for _, b in ratios))
    fleet = (sums[0] / len(ratios), sums[1] / len(ratios)) if ratios and not count else None
    yield _share(FLEET, currency, identity, fleet, count)


def _share(
    workload: str, currency: str, identity: str, pair: tuple[float, float] | None, untimed_count: int
) -> UseShare:
    covered, effective = pair or (None, None)
    return UseShare(
        workload=workload, currency=currency, identity=identity, covered_ratio=covered, effective_ratio=effective,
        untimed_count=untimed_count,
    )  # fmt: skip


def _directed(suite: Suite, run: list[Case], scores: Scores | None) -> Iterator[DirectedShare]:
    """Yield the share of each operator's obligations, and that of all together."""
    best = _best({case: met_by(case) for case in run}, scores)
    legal = frozenset[str]().union(
        *(met_by(suite_case.case) for suite_case in suite.cases)
    )  # also of cases that did not run
    phases: dict[str, set[str]] = {}
    for suite_case in suite.cases:
        phases.setdefault(suite_case.case.op, set()).add(suite_case.case.phase)
    rows = []
    for op, op_phases in sorted(phases.items()):
        stated = frozenset[str]().union(*(obligations_of(op, phase) for phase in sorted(op_phases)))
        infeasible = {name for name in stated if name in suite.infeasible and name not in legal}
        met = [best[name] for name in stated if name in best]
        rows.append(DirectedShare(
            op=op, met_count=len(met), valid_count=len(stated) - len(infeasible), infeasible_count=len(infeasible),
            effective_count=None if scores is None else sum(met),
        ))  # fmt: skip
    yield from rows
    yield DirectedShare(
        op=ALL, met_count=sum(row.met_count for row in rows), valid_count=sum(row.valid_count for row in rows),
        infeasible_count=sum(row.infeasible_count for row in rows),
        effective_count=None if scores is None else sum(row.effective_count or 0.0 for row in rows),
    )  # fmt: skip
