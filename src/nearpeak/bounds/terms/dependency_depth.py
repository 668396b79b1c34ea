"""Depth terms: a chain of dependent instructions takes at least one clock each, and a known latency in practice."""

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from nearpeak.bounds.terms.term_column import TermColumn, is_zero
from nearpeak.core.answers.bound import MODEL, PROVED
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work

LATENCY_CLOCKS = 4
"""Clocks from one instruction to the next that needs its result (Jia et al. 2018, arXiv:1804.06826, Volta)."""


def depth_terms(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge dependent steps: one clock each is proved; sums in pairs at the usual latency are a model."""
    chain = work.chain
    if chain is None:
        return ()
    clock_hz = target.clock_hz
    quantities = {"steps_count": chain.step_count, "clock_hz": clock_hz}
    depth_s = chain.step_count / clock_hz
    if is_zero(depth_s):
        return ()
    width: Any = chain.width_count
    depth = log2(max(width, 1)) if isinstance(width, int) else np.log2(np.maximum(width, 1))
    per_step = LATENCY_CLOCKS * (depth + 1)
    return (
        TermColumn(
            name="depth", time_s=depth_s, status=PROVED,
            formula="dependent steps / highest clock", expression="steps_count / clock_hz", quantities=quantities,
        ),
        TermColumn(
            name="latency", time_s=chain.step_count * per_step / clock_hz, status=MODEL,
            formula="steps * (log2(summed) + 1) * 4 / highest clock",
            expression="steps_count * (latency_clocks * (log2(max(width_count, 1)) + 1)) / clock_hz",
            quantities=quantities | {"width_count": chain.width_count, "latency_clocks": LATENCY_CLOCKS},
        ),
    )  # fmt: skip
