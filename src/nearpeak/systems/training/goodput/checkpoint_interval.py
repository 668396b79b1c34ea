"""Closed forms of the checkpoint interval and of the productive share of a run, by Young and by Daly."""

from math import exp, expm1, inf, log, sqrt

from nearpeak.errors import SpecError


def young_interval_s(save_s: float, failure_interval_s: float) -> float:
    """Return Young's interval between checkpoints, √(2 C M), in seconds of work.

    Source: Young 1974, Communications of the ACM 17(9), 'A first order approximation to the optimum checkpoint
        interval'.

    >>> round(young_interval_s(60, 3.1 * 3600))
    1157
    """
    _check(save_s, failure_interval_s)
    return sqrt(2 * save_s * failure_interval_s)


def daly_interval_s(save_s: float, failure_interval_s: float) -> float:
    """Return Daly's interval of higher order, in seconds of work; M where a save takes 2 M or longer.

    Source: Daly 2006, Future Generation Computer Systems 22(3), 'A higher order estimate of the optimum checkpoint
        interval for restart dumps', equation 37.

    >>> round(daly_interval_s(60, 3.1 * 3600))
    1118
    """
    _check(save_s, failure_interval_s)
    if save_s >= 2 * failure_interval_s:
        return failure_interval_s
    part = save_s / (2 * failure_interval_s)
    return sqrt(2 * save_s * failure_interval_s) * (1 + sqrt(part) / 3 + part / 9) - save_s


def best_interval_s(save_s: float, failure_interval_s: float) -> float:
    """Return the interval that makes `complete_ratio` largest, in seconds of work.

    It solves (1 - τ/M) exp((τ + C)/M) = 1, by Newton's method in x = 1 - τ/M.

    >>> best = best_interval_s(60, 3.1 * 3600)
    >>> all(complete_ratio(best, 60, 600, 11160) >= complete_ratio(best * by, 60, 600, 11160) for by in (0.98, 1.02))
    True
    """
    _check(save_s, failure_interval_s)
    # x exp(-x) = exp(-1 - C/M) with x in (0, 1); its logarithm ln x - x + 1 + C/M is concave, so Newton converges.
    excess = save_s / failure_interval_s
    x = 1.0 - min(0.999, daly_interval_s(save_s, failure_interval_s) / failure_interval_s)
    x = max(x, 1e-12)
    for _ in range(100):
        slope = 1 / x - 1
        from_log = log(x) - x + 1 + excess
        step = from_log / slope if slope else 0.0
        x = min(max(x - step, x / 10), 1 - 1e-12)
        if abs(step) < 1e-14:
            break
    return failure_interval_s * (1 - x)


def first_order_ratio(interval_s: float, save_s: float, restart_s: float, failure_interval_s: float) -> float:
    """Return the productive share of the time to first order, 1 - (C/τ + τ/2M + R/M); 0 where that is negative.

    >>> round(first_order_ratio(1157, 60, 600, 3.1 * 3600), 4)
    0.8425
    """
    _check(save_s, failure_interval_s)
    lost = save_s / interval_s + interval_s / (2 * failure_interval_s) + restart_s / failure_interval_s
    return max(0.0, 1 - lost)


def complete_ratio(interval_s: float, save_s: float, restart_s: float, failure_interval_s: float) -> float:
    """Return the productive share under exponential failures, also during restarts: τ / (M e^{R/M} (e^{(τ+C)/M} - 1)).

    Source: Daly 2006, as above, equation 13.

    >>> round(complete_ratio(1157, 60, 600, 3.1 * 3600), 4)
    0.8527
    """
    _check(save_s, failure_interval_s)
    if failure_interval_s == inf:
        return interval_s / (interval_s + save_s)
    if max(restart_s, interval_s + save_s) > 700 * failure_interval_s:  # beyond what exp can say
        return 0.0
    waits = exp(restart_s / failure_interval_s) * expm1((interval_s + save_s) / failure_interval_s)
    return interval_s / (failure_interval_s * waits)


def _check(save_s: float, failure_interval_s: float) -> None:
    if save_s <= 0 or failure_interval_s <= 0:
        raise SpecError(
            f"goodput: checkpoint time {save_s:g} s and mean time between failures {failure_interval_s:g} s must be "
            "above 0"
        )
