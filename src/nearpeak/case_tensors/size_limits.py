"""The largest case whose results are validated in the run that times it."""

from nearpeak.case_tensors.random_inputs import input_elements, size_bytes
from nearpeak.core.work.case import Case
from nearpeak.ops import work_of

LARGEST_BYTES, LARGEST_ELEMENTS = 64 * 2**20, 2**20
"""Tensor bytes and input elements of a case beyond which its results are not validated when it is timed.

Validation takes 7 to 16 s for 2**20 elements of a chain (one core, 2026-11-27; 37 to 70 s for four times as many), and
a case times out after 60 s.
"""
LARGEST_FLOP = 10**9
"""FLOP beyond which they are not validated, as validation takes many rounds in float64."""


def beyond_rounds(case: Case) -> str:
    """Return why a case is too large for validation when it is timed; empty where it is not."""
    beyond = size_bytes(case) > LARGEST_BYTES or input_elements(case) > LARGEST_ELEMENTS
    if beyond or sum(work_of(case).flop.values()) > LARGEST_FLOP:
        return "too large for rounds in float64; check a smaller case of its kind"
    return ""
