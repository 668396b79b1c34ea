"""Latencies, throughput and goodput of a serving run, derived from the times of its requests and steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome

DEFINITIONS: Mapping[str, str] = {
    "ttft": "time to first token: first token − arrival, waiting included",
    "tpot": "time per output token: (last token − first token) / (output tokens − 1); requests of one token have none",
    "itl": "gap between tokens: from the end of one step that decodes to the end of the next, once per sequence in it",
    "latency": "last token − arrival",
    "queue": "start of the first step with the request − arrival",
    "goodput": "requests per second that meet every limit",
    "throughput": "tokens of the requests that finished in the window, over the window",
}
"""What each metric means, as it is printed beside the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a run that counts: requests that arrive in it, and tokens of those that finish in it."""

    start_s: float
    """Start."""
    stop_s: float
    """End."""
    name: str
    """How it was chosen."""

    def __post_init__(self) -> None:
        """Refuse a window without length."""
        if self.stop_s <= self.start_s:
            raise SpecError(
                f"window {self.name!r}: ends at {self.stop_s:g} s, not after its start at {self.start_s:g} s; a longer "
                "load is needed"
            )


def whole(outcome: Outcome) -> Window:
    """Return the window from the first arrival to the last token, ramp and drain included."""
    return Window(start_s=float(outcome.requests.arrival_s[0]), stop_s=outcome.end_s, name="whole run")


def steady(outcome: Outcome, *, ramp_count: int = 0) -> Window:
    """Return the window between ramp and drain: from the arrival after `ramp_count` requests until the last arrival.

    In a closed loop of C requests, `ramp_count` = C leaves out the requests that arrive together at the start, and the
    last arrival is when the number in flight begins to fall.
    """
    arrivals = np.sort(outcome.requests.arrival_s)
    if ramp_count >= len(arrivals):
        raise SpecError(f"window: a ramp of {ramp_count} requests leaves none of {len(arrivals)}")
    return Window(start_s=float(arrivals[ramp_count]), stop_s=float(arrivals[-1]), name="without ramp and drain")


def request_metric(outcome: Outcome, name: str, window: Window | None = None) -> Floats:
    """Return one value per request that arrives in the window, in seconds: ttft, tpot, latency or queue.

    Requests of a single token have no time per output token and are left out of it.
    """
    requests = outcome.requests
    if name == "ttft":
        values = outcome.first_s - requests.arrival_s
    elif name == "tpot":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = (outcome.last_s - outcome.first_s) / (requests.output_count - 1)
    elif name == "latency":
        values = outcome.last_s - requests.arrival_s
    elif name == "queue":
        values = outcome.scheduled_s - requests.arrival_s
    else:
        raise UnknownNameError(f"metric {name!r}: no metric of requests; known: ttft, tpot, latency, queue")
    counts = _within(outcome, window) & ((requests.output_count > 1) | (name != "tpot"))
    chosen: Floats = values[counts]
    return chosen


def _within(outcome: Outcome, window: Window | None) -> npt.NDArray[np.bool_]:
    arrivals = outcome.requests.arrival_s
    if window is None:
        return np.ones(len(arrivals), np.bool_)
    inside: npt.NDArray[np.bool_] = (arrivals >= window.start_s) & (arrivals <= window.stop_s)
    return inside


def token_gaps(outcome: Outcome) -> tuple[Floats, Floats]:
    """Return gaps between tokens in seconds, and how many sequences saw each.

    Raises:
        SpecError: the run recorded no steps.
    """
    if outcome.steps is None:
        raise SpecError("gaps between tokens need the steps of the run: record them (is_logged)")
    gaps, weights = [], []
    for replica in range(len(outcome.step_count)):
        rows = (outcome.steps.replica == replica) & (outcome.steps.decode_count > 0)
        ends = outcome.steps.start_s[rows] + outcome.steps.duration_s[rows]
        gaps.append(np.diff(ends))
        weights.append(np.minimum(outcome.steps.decode_count[rows][1:], outcome.steps.decode_count[rows][:-1]))
    return np.concatenate(gaps), np.concatenate(weights)


def quantile(values: Floats, share: float, weights: Floats | None = None) -> float:
    """Return the least value that at least a share of all values do not exceed.

    >>> quantile(np.array([4.0, 1.0, 2.0, 3.0]), 0.5), quantile(np.array([1.0, 9.0]), 0.5, np.array([1.0, 3.0]))
    (2.0, 9.0)
    """
    if not len(values):
        raise SpecError("quantile: of no values; the window holds no request")
    order = np.argsort(values, kind="stable")
    counts = np.ones(len(values)) if weights is None else weights[order]
    reached = np.cumsum(counts)
    return float(values[order][np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Latencies that a request must not exceed; none where there is no limit."""

    ttft_s: float | None = None
    """Time to first token."""
    tpot_s: float | None = None
    """Time per output token."""
    latency_s: float | None = None
    """Whole request."""

    def met(self, outcome: Outcome) -> npt.NDArray[np.bool_]:
        """Return which requests meet all limits; requests of one token meet any time per output token."""
        good = np.ones(len(outcome.requests), np.bool_)
        for name, limit in self.items():
            values = np.full(len(good), -np.inf)
            rows = (outcome.requests.output_count > 1) | (name != "tpot")
            values[rows] = request_metric(outcome, name)
            good &= values <= limit
        return good

    def items(self) -> tuple[tuple[str, float], ...]:
        """Return metrics and limits, those that are set."""
        limits = (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("latency", self.latency_s))
        return tuple((name, limit) for name, limit in limits if limit is not None)


def goodput(outcome: Outcome, limits: Limits, window: Window | None = None) -> float:
    """Return the requests per second that arrive in the window and meet all limits."""
    span = window or whole(outcome)
    return float((limits.met(outcome) & _within(outcome, span)).sum() / (span.stop_s - span.start_s))


def throughput(outcome: Outcome, window: Window | None = None) -> Mapping[str, float]:
    """Return requests, input and output tokens per second of the requests that finish in the window."""
    span = window or whole(outcome)
    rows = (outcome.last_s >= span.start_s) & (outcome.last_s <= span.stop_s)
    length_s = span.stop_s - span.start_s
    return {
        "requests": float(rows.sum() / length_s),
        "input_tokens": float(outcome.requests.input_count[rows].sum() / length_s),
        "output_tokens": float(outcome.requests.output_count[rows].sum() / length_s),
    }


def summary(
    *outcomes: Outcome, window: Callable[[Outcome], Window] | None = None
) -> Mapping[str, Mapping[str, float]]:  # fmt: skip
    """Return mean, p50, p90 and p99 of each latency in seconds, over requests of all runs that arrive in the window.

    Args:
        window: gives the part of a run that counts; all of it by default.
    """
    table = {}
    for name in ("ttft", "tpot", "latency", "queue"):
        values = np.concatenate([request_metric(each, name, window(each) if window else None) for each in outcomes])
        if len(values):
            table[name] = _statistics(values)
    if all(each.steps is not None for each in outcomes):
        parts = [token_gaps(each) for each in outcomes]
        gaps, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if weights.sum() > 0:
            table["itl"] = _statistics(gaps, weights)
    return table


def _statistics(values: Floats, weights: Floats | None = None) -> dict[str, float]:
    return {"mean": float(np.average(values, weights=weights))} | {
        f"p{share}": quantile(values, share / 100, weights) for share in (50, 90, 99)
    }
