"""A run over many cases: each in a process of its own, each result kept before the next case starts."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nearpeak.core.case import Case
from nearpeak.core.measurement import Measurement, Timing
from nearpeak.exchange.measurement_lines import key_of
from nearpeak.measure.isolated import measure_fresh, measure_isolated
from nearpeak.measure.results import ResultFile, result_file
from nearpeak.measure.runners import RUNNERS, runner_of

Take = Callable[[Case, str, Timing], Measurement]
Judge = Callable[[Measurement], Measurement]


def run_cases(
    cases: Iterable[Case], runner: str, timing: Timing, out: Path | None = None, *, fresh: bool = False,
    judge: Judge = lambda found: found,
) -> Iterator[Measurement]:  # fmt: skip
    """Yield the measurement of each case, once it is stored in `out`; what `out` holds already does not run again.

    Args:
        fresh: start a process per case instead of forking a warmed one.
        judge: what is to be said of a measurement before it is stored.
    """
    take = _take(runner, judge, fresh=fresh)
    wanted = dict.fromkeys(cases)
    if out is None:
        for case in wanted:
            yield take(case, runner, timing)
        return
    with result_file(out) as file:
        yield from _stored(wanted, runner, timing, (file, take, "fresh" if fresh else "forked"))


def _stored(
    cases: Iterable[Case], runner: str, timing: Timing, how: tuple[ResultFile, Take, str]
) -> Iterator[Measurement]:
    file, take, process = how
    method = {"cache": timing.cache, "thread_count": timing.thread_count, "process": process}
    for case in cases:
        key = key_of(case, runner, method)
        if key in file.keys:
            continue
        found = take(case, runner, timing)
        file.append(found, key)
        yield found


def _take(runner: str, judge: Judge, *, fresh: bool) -> Take:
    """Return how to measure a case: in a process of its own where something runs, here where times are only said."""
    made = RUNNERS[runner.partition(":")[0]]
    isolated: Take = measure_fresh if fresh else measure_isolated

    def take(case: Case, runner: str, timing: Timing) -> Measurement:
        return judge(isolated(case, runner, timing))

    def ask(case: Case, runner: str, timing: Timing) -> Measurement:
        return judge(runner_of(runner, timing).measure(case))

    return take if hasattr(made, "prepare") else ask
