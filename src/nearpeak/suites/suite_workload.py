"""Conversion of a suite to a workload that holds its chosen cases as calls."""

from collections.abc import Iterator

from nearpeak.core.answers.suite import Suite, SuiteCase
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.units import counted


def workload_of(suite: Suite) -> Workload:
    """Return the cases of `suite` that are run, as often as its workloads call them, and the calls without a case.

    A case that no workload calls counts once.

    Raises:
        SpecError: the suite runs no case.

    >>> from nearpeak.suites.directed_cases import directed_suite
    >>> found = workload_of(directed_suite("fill"))
    >>> found.step, found.calls[0].operator, found.calls[0].call_count
    ('sweep', 'fill', 1)
    """
    if not suite.chosen:
        raise SpecError(f"{suite.name}: the suite runs no case; build it again without --cover")
    lost = (
        Call(case=None, operator=name, phase="forward", call_count=count)
        for source in suite.sources
        for name, count in source.uncovered.items()
    )
    assumptions = []
    if left := len(suite.cases) - len(suite.chosen):
        assumptions.append(f"{left} of {len(suite.cases)} cases of the suite are not run, and not in this")
    if alone := sum(not entry.call_count for entry in suite.chosen):
        assumptions.append(f"{counted(alone, 'case')} that no workload calls, counted once")
    return Workload(
        name=suite.name, step="sweep", calls=(*(call for entry in suite.chosen for call in _calls(entry)), *lost),
        origin={"kind": "suite", "sources": ", ".join(entry.name for entry in suite.sources)},
        assumptions=tuple(assumptions),
    )  # fmt: skip


def _calls(suite_case: SuiteCase) -> Iterator[Call]:
    """Yield the calls of a case by the places that make them."""
    places = [(why.module, why.line, why.call_count) for why in suite_case.why if why.call_count] or [("", "", 1)]
    for module, line, count in places:
        yield Call(
            case=suite_case.case,
            operator=suite_case.case.op,
            phase=suite_case.case.phase,
            module=module,
            source=line,
            call_count=count,
        )
