"""Comparison of a simulated run with the latencies that a log of the same requests holds."""

from collections.abc import Mapping

import numpy as np

from nearpeak.core.systems.service import LoggedLatency
from nearpeak.errors import SpecError
from nearpeak.systems.serving.latency_metrics import quantile, request_metric
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome

_SHARES = {"p50": 0.5, "p99": 0.99}


def logged_latencies(outcome: Outcome, measured_s: Mapping[str, Floats]) -> tuple[LoggedLatency, ...]:
    """Return mean, median and 99th percentile of each measured latency beside those of a run, over the same requests.

    Args:
        outcome: run of the requests of the log, in its order.
        measured_s: `ttft`, `tpot` and `latency` of each request; NaN for none. Requests of one token have no time per
            token, whatever stands in the log.

    Raises:
        SpecError: the log has another number of requests than the run.
    """
    latencies = []
    for name in ("ttft", "tpot", "latency"):
        if (column := measured_s.get(name)) is None:
            continue
        if len(column) != len(outcome.requests):
            raise SpecError(f"log: {len(column)} values of {name} for {len(outcome.requests)} requests")
        measured = column[outcome.requests.output_count > 1] if name == "tpot" else column
        is_known = np.isfinite(measured) & (measured > 0)
        if not is_known.any():
            continue
        sides = measured[is_known], request_metric(outcome, name)[is_known]
        values = {"mean": tuple(float(side.mean()) for side in sides)} | {
            statistic: tuple(quantile(side, share) for side in sides) for statistic, share in _SHARES.items()
        }
        latencies += [
            LoggedLatency(name=name, statistic=statistic, measured_s=pair[0], predicted_s=pair[1],
                          request_count=int(is_known.sum())) for statistic, pair in values.items()
        ]  # fmt: skip
    return tuple(latencies)
