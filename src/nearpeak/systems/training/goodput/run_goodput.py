"""Goodput of a training run: closed forms and simulation in one report."""

import numpy as np

from nearpeak.core.systems.goodput import SHARES, GoodputReport, ShareRange
from nearpeak.errors import SpecError
from nearpeak.systems.training.goodput.checkpoint_interval import (
    best_interval_s,
    complete_ratio,
    daly_interval_s,
    first_order_ratio,
    young_interval_s,
)
from nearpeak.systems.training.goodput.failure_model import (
    CheckpointCost,
    ElasticPolicy,
    FailureModel,
    SpotMarket,
    prior_failures,
)
from nearpeak.systems.training.goodput.goodput_simulation import simulate_goodput
from nearpeak.units import show

MONTH_S = 30 * 86_400.0
"""Length of a run that is simulated unless another is stated."""


def goodput_of(
    save: CheckpointCost, restart_s: float, *, device_count: int | None = None, failures: FailureModel | None = None,
    policy: ElasticPolicy | None = None, market: SpotMarket | None = None, interval_s: float | None = None,
    horizon_s: float = MONTH_S, run_count: int = 1000, seed: int = 0,
) -> GoodputReport:  # fmt: skip
    """Return which shares of a training run's time make progress that is kept.

    Args:
        save: cost of a checkpoint, best measured with the user's own script.
        restart_s: detection, rescheduling, loading and warm-up after a failure, best measured likewise.
        device_count: devices of the job, from which the failure rate follows by the Llama 3 report.
        failures: the cluster's own failure rate, instead.
        interval_s: work between two checkpoints; the best for the complete formula unless stated.

    Raises:
        SpecError: neither or both of `device_count` and `failures`, values that cannot be, or no progress.

    >>> report = goodput_of(CheckpointCost(blocking_s=60), 600, failures=FailureModel(failure_interval_s=11160),
    ...                     interval_s=1157, run_count=200)
    >>> round(report.first_order_ratio, 4), round(report.complete_ratio, 4), abs(report.goodput_ratio - 0.853) < 0.004
    (0.8425, 0.8527, True)
    """
    if (device_count is None) == (failures is None):
        raise SpecError("goodput: state either device_count, for the prior of failures, or failures")
    model = failures or prior_failures(device_count or 0)
    failure_s = model.failure_interval_s
    cost_s = save.blocking_s + save.contention_ratio * save.background_s
    work_s = best_interval_s(cost_s, failure_s) if interval_s is None else interval_s
    result = simulate_goodput(
        model, save, restart_s=restart_s, interval_s=work_s, policy=policy or ElasticPolicy(), market=market,
        horizon_s=horizon_s, run_count=run_count, seed=seed,
    )  # fmt: skip
    productive_h = result.seconds["productive"].sum() / 3600
    if not productive_h:
        raise SpecError(
            f"goodput: no run of {horizon_s:,.0f} s makes progress with a failure in {show(failure_s, 's')}, restarts "
            f"of {show(restart_s, 's')} and a checkpoint every {show(work_s, 's')}; "
            "rarer failures or faster restarts would"
        )
    return GoodputReport(
        interval_s=work_s, failure_interval_s=failure_s, failure_source=model.source,
        shares={share: _range(result.seconds[share] / horizon_s) for share in SHARES},
        failure_count=_range(result.failures),
        young_interval_s=young_interval_s(cost_s, failure_s), daly_interval_s=daly_interval_s(cost_s, failure_s),
        first_order_ratio=first_order_ratio(work_s, cost_s, restart_s, failure_s),
        complete_ratio=complete_ratio(work_s, cost_s, restart_s, failure_s),
        cost_ratio=float(result.paid_hours.sum() / productive_h),
        run_count=run_count, horizon_s=horizon_s, seed=seed,
    )  # fmt: skip


def _range(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> ShareRange:
    low, high = np.quantile(values, [0.1, 0.9])
    return ShareRange(float(values.mean()), float(low), float(high))
