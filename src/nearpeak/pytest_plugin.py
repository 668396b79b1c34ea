"""The pytest plug-in: a test marked with `@nearpeak.case(...)` checks and times a function by `nearpeak_measure`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from nearpeak.core.case import Case
from nearpeak.errors import MeasureError, SpecError

if TYPE_CHECKING:
    from nearpeak.core.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """Times of a function whose results are right."""

    measurement: "Measurement"
    """All samples."""

    def ratio(self, target: str = "cpu") -> float:
        """Return the bound on `target` over the median time: 1 is as fast as the hardware can be.

        Raises:
            MeasureError: no bound is known: 'nearpeak calibrate roofs' measures this machine's CPU.
        """
        from nearpeak.measuring import bound_s
        from nearpeak.targets import target_of

        least_s = bound_s(self.measurement.case, target_of(target))
        if least_s is None:
            raise MeasureError(f"{self.measurement.case.label()}: there is no bound on {target}")
        return least_s / self.time_s

    @property
    def time_s(self) -> float:
        """Median time of one call."""
        return self.measurement.estimate().centre_s


class NearpeakMeasure:
    """What the fixture gives: call it with the function under test."""

    def __init__(self, case: Case | None) -> None:
        """Keep the case of the test."""
        self.case = case

    def __call__(
        self, function: Callable[..., Any], case: Case | None = None, *, cache: str = "cold", budget_s: float = 0.3
    ) -> Attained:
        """Return the times of `function` on the test's case, after the contract on results has passed it.

        Args:
            function: (inputs by name, **arguments of the case) → outputs by name, on PyTorch tensors, or on NumPy
                arrays where the function has an attribute `arrays = "numpy"`.
            case: instead of that of the decorator.

        A warning says where results were not proved: the case is too large, or cannot tell right from wrong.

        Raises:
            AssertionError: a result is wrong, or the function raised; the message has the command that repeats it.
        """
        from nearpeak.core.measurement import Timing
        from nearpeak.measure.runners.callable import UserCallable
        from nearpeak.measure.taking import TimedRunner

        wanted = case or self.case
        if wanted is None:
            raise SpecError("nearpeak_measure: no case; decorate the test with @nearpeak.case(...) or give case=")
        timing = Timing(cache=cache, budget_s=budget_s)
        backend = UserCallable.of(function, timing)
        found = TimedRunner(backend, timing, argument=backend.argument, process="caller").measure(wanted)
        if not found.samples_s:
            again = f"; {found.validation.command}" if found.validation is not None else ""
            raise AssertionError(f"{wanted.label()}: {found.outcome.value}: {found.note}{again}")
        unproved = _unproved(found)
        if unproved:
            warnings.warn(f"{wanted.label()}: results are not proved right: {unproved}", stacklevel=2)
        return Attained(measurement=found)


def _unproved(found: "Measurement") -> str:
    """Return why times say nothing of results; empty where the contract has passed them."""
    if found.validation is None:
        return "the case is too large to be checked where it is timed, or has no contract; check a smaller one"
    return "" if not found.validation.failed else str(found.validation.reason)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark by which `@nearpeak.case` is found."""
    config.addinivalue_line(
        "markers", "nearpeak_case(case): the case that nearpeak_measure runs; set by @nearpeak.case"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its cases."""
    cases: list[Case] = list(getattr(metafunc.function, "nearpeak_cases", ()))
    if cases and "nearpeak_measure" in metafunc.fixturenames:
        metafunc.parametrize(
            "_nearpeak_case", cases, ids=[one.label().replace(" ", "-") for one in cases], indirect=True
        )


@pytest.fixture
def _nearpeak_case(request: pytest.FixtureRequest) -> Case | None:
    return getattr(request, "param", None)


@pytest.fixture
def nearpeak_measure(_nearpeak_case: Case | None) -> NearpeakMeasure:
    """Check and time a function on the case of the test."""
    return NearpeakMeasure(_nearpeak_case)
