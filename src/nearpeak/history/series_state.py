"""State of each series: newest value against its bound, its prediction and the previous value."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nearpeak.core.answers.bound import Bound
from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.history.stored_run import Series
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.history.stored_devices import case_of_series, target_of_device
from nearpeak.store import Store
from nearpeak.store.page_queries import in_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Newest value of a series with its bound, prediction and previous value."""

    series: Series
    """The series."""
    value: float | None
    """Newest value, in the metric's unit; none where there is none."""
    previous_value: float | None
    """Previous value."""
    run: int | None
    """Run of the newest value."""
    bound_s: float | None = None
    """Least time that the case can take on the device; none where nothing bounds it."""
    limiter: str = ""
    """Limiting resource of the bound."""
    predicted_s: float | None = None
    """Time that good software is expected to reach; none where nothing predicts it."""

    @property
    def attained_ratio(self) -> float | None:
        """Bound over measured time; none where either is unknown, or where the time is below its bound."""
        if self.bound_s is None or not self.value or self.value < self.bound_s:
            return None
        return self.bound_s / self.value

    @property
    def is_implausible(self) -> bool:
        """Whether the time is below its bound: a rule, a figure or a timer is wrong."""
        return self.bound_s is not None and self.value is not None and self.value < self.bound_s

    @property
    def change_ratio(self) -> float | None:
        """Newest over previous value; none where there is no previous one."""
        if self.value is None or not self.previous_value:
            return None
        return self.value / self.previous_value


def standings(store: Store, series: Sequence[Series], *, predicted: bool = True) -> tuple[Standing, ...]:
    """Return the state of some series, in their order.

    Args:
        predicted: include the predicted time.
    """
    ids = [entry.id for entry in series]
    latest = {entry.series: entry for part in in_parts(ids) for entry in store.latest_against_previous(part)}
    newest = store.browsing.newest([number for number in ids if number not in latest])
    states = []
    for entry in series:
        pair, single = latest.get(entry.id), newest.get(entry.id)
        bound, expected = bound_of(entry), prediction_of(entry) if predicted else None
        states.append(Standing(
            series=entry, value=pair.value if pair else single[1] if single else None,
            previous_value=pair.previous_value if pair else None,
            run=pair.run if pair else single[0] if single else None,
            bound_s=None if bound is None else bound.time_s, limiter="" if bound is None else bound.limiter,
            predicted_s=None if expected is None else expected.time_s,
        ))  # fmt: skip
    return tuple(states)


def bound_of(series: Series) -> Bound | None:
    """Return the bound of a series of times; none where its case or device is not known."""
    placed_case = _case(series)
    return None if placed_case is None else _bound(placed_case, series.device)


def prediction_of(series: Series) -> Prediction | None:
    """Return the prediction for a series of times; none where nothing predicts it."""
    placed_case = _case(series)
    return None if placed_case is None else _prediction(placed_case, series.device)


def _case(series: Series) -> Case | None:
    return _remembered_case(series.case, _Held(series)) if series.metric.name == "time" else None


class _Held:
    """A series that compares equal to every other, so that a cache is keyed by the case digest alone."""

    __slots__ = ("series",)

    def __init__(self, series: Series) -> None:
        self.series = series

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=1 << 13)
def _remembered_case(digest: str, held: _Held) -> Case | None:
    del digest  # it is the key
    try:
        return case_of_series(held.series)
    except NearpeakError:
        return None


@lru_cache(maxsize=1 << 13)
def _bound(case: Case, device: str) -> Bound | None:
    from nearpeak.bounds.case_bound import case_bound

    target = target_of_device(device)
    try:
        return None if target is None else case_bound(case, target)
    except NearpeakError:
        return None


@lru_cache(maxsize=1 << 13)
def _prediction(case: Case, device: str) -> Prediction | None:
    from nearpeak.prediction.case_prediction import predict_case

    target = target_of_device(device)
    try:
        return None if target is None else predict_case(case, target)
    except NearpeakError:
        return None
