"""Fit of an engine's host costs to measured latencies: at most four coefficients, each with a physical meaning."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.systems.serving.engine_costs import EngineCosts

SCALARS = ("host_step_s", "host_sequence_s", "host_call_s", "host_prompt_s")
"""Host times that a fit may choose."""
STEPS_S = {"host_step_s": 5e-4, "host_sequence_s": 2e-5, "host_call_s": 5e-6, "host_prompt_s": 5e-3}
"""Change of each scalar over which its effect is taken."""
ROUNDS = 3
Latencies = Callable[[EngineCosts], Sequence[float]]
"""Predicted latencies of all observations under some costs, seconds."""


def fitted_costs(
    costs: EngineCosts, predicted_s: Latencies, measured_s: Sequence[float], scalars: Sequence[str] = SCALARS
) -> EngineCosts:
    """Return the costs whose latencies are nearest to measured ones, in relative errors that outliers weigh little in.

    Args:
        costs: where the fit starts; other fields stay.
        scalars: names of SCALARS to fit.

    Raises:
        SpecError: fewer observations than coefficients, or a name that is none.

    >>> start = EngineCosts(name="x", title="", host_step_s=0, host_sequence_s=0, host_call_s=0, source="")
    >>> fit = fitted_costs(start, lambda c: [0.01 + c.host_step_s, 0.02 + c.host_step_s], [0.012, 0.022],
    ...                    ("host_step_s",))
    >>> round(fit.host_step_s, 6)
    0.002
    """
    import numpy as np
    from scipy.optimize import least_squares

    if set(scalars) - set(SCALARS) or len(measured_s) < len(scalars):
        raise SpecError(
            f"host fit: {len(measured_s)} observations for {', '.join(scalars)}; known: {', '.join(SCALARS)}"
        )
    measured = np.asarray(measured_s, float)
    for _ in range(ROUNDS):
        base = np.asarray(predicted_s(costs), float)
        more = (replace(costs, **{name: getattr(costs, name) + STEPS_S[name]}) for name in scalars)
        moved = np.array([np.asarray(predicted_s(changed), float) - base for changed in more])
        slopes = moved / np.array([[STEPS_S[name]] for name in scalars])
        start = np.array([getattr(costs, name) for name in scalars])
        scale = np.array([STEPS_S[name] for name in scalars])

        def residuals(
            values: Any, base: Any = base, slopes: Any = slopes, start: Any = start, scale: Any = scale
        ) -> Any:
            return np.log(np.maximum(base + (values * scale - start) @ slopes, 1e-9) / measured)

        inside = np.maximum(start / scale, 0.5)  # at a bound the search would not move
        fit = least_squares(residuals, inside, bounds=(0.0, np.inf), loss="soft_l1", f_scale=0.05)
        costs = replace(
            costs, **dict(zip(scalars, [round(value, 9) for value in (fit.x * scale).tolist()], strict=True))
        )
    return costs
