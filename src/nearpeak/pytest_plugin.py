"""The pytest plug-in: a test marked with `@nearpeak.case(...)` checks and times a function by `nearpeak_measure`."""

import math
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NearpeakError, SpecError

if TYPE_CHECKING:
    from nearpeak.core.runs.measurement import Measurement, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """Times of a function whose results are right."""

    measurement: "Measurement"
    """All samples."""
    again: str = ""
    """Command that measures it again."""

    def ratio(self, target: str = "") -> float:
        """Return the bound over the median time: 1 is as fast as the hardware can be.

        Args:
            target: whose bound; that of the device that was measured where none is named.

        Raises:
            MeasureError: no bound is known: 'nearpeak calibrate roofs' measures this machine's CPU.
        """
        from nearpeak.api.measured_analysis import bound_s
        from nearpeak.targets import target_of

        name = target or self.measurement.target
        least_s = bound_s(self.measurement.case, target_of(name))
        if least_s is None:
            raise MeasureError(f"{self.measurement.case.label()}: there is no bound on {name}")
        return least_s / self.time_s

    def require_ratio(self, least_ratio: float, target: str = "") -> None:
        """Fail where less than `least_ratio` of the bound is attained.

        Raises:
            AssertionError: with both times, what limits the bound, and the command that measures it again.
            SpecError: the ratio is not above 0 and at most 1: nothing would be asserted, or nothing could pass; or no
                roofs of this machine's CPU are measured, which is for 'nearpeak calibrate roofs'.
        """
        from nearpeak.api.questions import bound
        from nearpeak.reports.figure_text import known_to
        from nearpeak.units import show

        __tracebackhide__ = True  # what failed is the caller's line
        if not 0 < least_ratio <= 1:  # below, nothing would fail; above, nothing could pass
            raise SpecError(f"require_ratio: {least_ratio!r} is no share of the bound; give one above 0, at most 1")
        name = target or self.measurement.target
        try:
            limit = self.ratio(target)
        except NearpeakError as error:  # raised anew, as pytest shows the frames that it came through
            raise type(error)(str(error)) from None
        if limit >= least_ratio:
            return
        least, known = bound(self.measurement.case, name), known_to(self.measurement.estimate())
        raise AssertionError(
            f"{self.measurement.case.label()}: {limit:.3g} of the bound on {name} is attained, {least_ratio:g} is "
            f"required: {show(self.time_s, 's')} {known} beside {show(least.time_s, 's')}, limited by "
            f"{least.limiter}; again: {self.again}"
        )

    @property
    def time_s(self) -> float:
        """Median time of one call."""
        return self.measurement.estimate().centre_s


class NearpeakMeasure:
    """What the fixture gives: call it with the function under test."""

    def __init__(self, case: Case | None, test: str = "") -> None:
        """Keep the case of the test, and how pytest calls it."""
        self.case, self._test, self.was_called = case, test, False

    def __call__(
        self, function: Callable[..., Any], case: Case | None = None, *, cache: str = "cold", budget_s: float = 0.3,
        device: str = "cpu",
    ) -> Attained:  # fmt: skip
        """Return the times of `function` on the test's case, after the contract on results has passed it.

        Args:
            function: (inputs by name, **arguments of the case) → outputs by name, on PyTorch tensors, or on NumPy
                arrays where the function has an attribute `arrays = "numpy"`.
            case: instead of that of the decorator.
            device: `cpu`, or `cuda` for a function of tensors on the first GPU.

        The device is locked while samples are taken, so that tests side by side do not disturb each other. A warning
        says where results were not proved: the case is too large, or cannot tell right from wrong.

        Raises:
            AssertionError: a result is wrong, or the function raised; the message has the command that repeats it.
        """
        from nearpeak.case_tensors.user_functions import process_exit_refused
        from nearpeak.core.runs.measurement import Outcome, Timing
        from nearpeak.measurement.isolated_measurement import lock_of
        from nearpeak.measurement.timed_runner import TimedRunner

        __tracebackhide__ = True  # what failed is the caller's line
        self.was_called = True
        _refuse_no_function(function)
        wanted = case or self.case
        if wanted is None:
            raise SpecError("nearpeak_measure: no case; decorate the test with @nearpeak.case(...) or give case=")
        if isinstance(budget_s, (str, bool)) or not 0 < budget_s < math.inf:
            raise SpecError(f"nearpeak_measure: budget_s {budget_s!r} is no time in seconds; e.g. budget_s=0.3")
        timing = Timing(cache=cache, budget_s=budget_s)
        backend = _backend(function, timing, device)
        runner = TimedRunner(backend, timing, argument=backend.argument, process="caller")
        with process_exit_refused():
            measurement = runner.measure(wanted, lock_of)
        if not measurement.has_times or measurement.outcome is Outcome.SUSPECT_FAST:
            command = measurement.validation.command if measurement.validation is not None else ""
            again = self._again(function, command)
            raise AssertionError(
                f"{wanted.label()}: {measurement.outcome.value}: {measurement.note}{again and f'; again: {again}'}"
            )
        unproved = _unproved(measurement)
        if unproved:
            warnings.warn(f"{wanted.label()}: results are not proved right: {unproved}", stacklevel=2)
        words = shlex.join(["--runner", runner.name, "--cache", cache, "--budget", f"{budget_s:g} s"])
        return Attained(
            measurement=measurement, again=self._again(function, f"nearpeak measure {_in_words(wanted)} {words}")
        )

    def _again(self, function: Callable[..., Any], command: str) -> str:
        """Return the command where the function has a name that others can import, else the test itself."""
        named = "<" not in getattr(function, "__qualname__", "<")
        test = f"pytest {shlex.quote(self._test)}" if self._test else ""
        return command if named and command else test or command


def _refuse_no_function(function: object) -> None:
    if isinstance(function, type) or not callable(function):
        what = "a class" if isinstance(function, type) else f"no function but {type(function).__name__}"
        raise SpecError(f"nearpeak_measure: {function!r} is {what}; give a function, or an object that is called")


def _backend(function: Callable[..., Any], timing: "Timing", device: str) -> Any:
    from nearpeak.measurement.runners.callable import UserCallable

    if device == "cpu":
        return UserCallable.of(function, timing)
    if device == "cuda":
        from nearpeak.measurement.runners.callable_cuda import CallableOnGpu

        return CallableOnGpu.of(function, timing)
    raise SpecError(f"nearpeak_measure: device {device!r}; choose cpu or cuda")


def _in_words(case: Case) -> str:
    from nearpeak.validation import _words

    words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in _words(case)]
    return shlex.join([case.op, *words])


def _unproved(measurement: "Measurement") -> str:
    """Return why times say nothing of results; empty where the contract has passed them."""
    if measurement.validation is None:
        return "the case is too large to be checked where it is timed, or has no contract; check a smaller one"
    return "" if not measurement.validation.failed else str(measurement.validation.reason)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its cases."""
    cases: list[Case] = list(getattr(metafunc.function, "nearpeak_cases", ()))
    if cases and "nearpeak_measure" not in metafunc.fixturenames:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: @nearpeak.case marks a test that takes no nearpeak_measure, "
            "so that nothing would be checked; give it that argument, or take the mark away"
        )
    if cases:
        metafunc.parametrize(
            "_nearpeak_case", cases, ids=[case.label().replace(" ", "-") for case in cases], indirect=True
        )


@pytest.fixture
def _nearpeak_case(request: pytest.FixtureRequest) -> Case | None:
    return getattr(request, "param", None)


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep whether a test has passed, for its fixture."""
    outcome = yield
    if call.when == "call":
        item.stash[_PASSED] = outcome.get_result().passed  # type: ignore[attr-defined]  # hooks are typed as none


@pytest.fixture
def nearpeak_measure(_nearpeak_case: Case | None, request: pytest.FixtureRequest) -> Iterator[NearpeakMeasure]:
    """Check and time a function on the case of the test; a test of a case that measures nothing is an error."""
    fixture = NearpeakMeasure(_nearpeak_case, request.node.nodeid)
    yield fixture
    if _nearpeak_case is not None and not fixture.was_called and request.node.stash.get(_PASSED, False):
        pytest.fail("the test passed without a call of nearpeak_measure, so that nothing was checked", pytrace=False)
