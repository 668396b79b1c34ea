"""What the repository asserts of its kernels: right by the contract, and at least a share of the machine's roofs."""

import kernels
import pytest

import nearpeak
from nearpeak.pytest_plugin import NearpeakMeasure

LEAST_RATIO = 0.001
"""Share of the bound that must be reached; a repository raises it to what its kernels reach where it tests."""


@nearpeak.case("softmax", rows=64, columns=128, dtype="fp32")
@nearpeak.case("softmax", rows=1, columns=1000, dtype="fp32")
@nearpeak.case("softmax", rows=256, columns=7, dtype="bf16")
def test_softmax_is_right_and_reaches_its_share(nearpeak_measure: NearpeakMeasure) -> None:
    """Fail where a result is wrong, or the time is too far from the bound."""
    found = nearpeak_measure(kernels.softmax, cache="hot", budget_s=0.05)
    found.require_ratio(LEAST_RATIO)


@nearpeak.case("softmax", rows=64, columns=128, dtype="fp32")
def test_a_kernel_that_overflows_is_found(nearpeak_measure: NearpeakMeasure) -> None:
    """The contract draws large inputs too."""
    with pytest.raises(AssertionError, match="incorrect"):
        nearpeak_measure(kernels.careless_softmax, cache="hot", budget_s=0.05)
