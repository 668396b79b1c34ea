"""Steps of a model at each precision: weights and activations of products stored and multiplied in narrower formats."""

from collections.abc import Mapping
from dataclasses import replace

from nearpeak.core.work.stored_formats import WIDE_FORMAT, weight_format
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.quantisation.quantised_weights import with_quantised_weights
from nearpeak.units import counted

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4")
"""Rows of the table."""
USUAL = tuple(name for name in PRECISIONS if name != "fp16")
"""Rows where none are asked for: units form products of fp16 at the rate of bf16."""
NARROW: Mapping[str, str] = {"fp8": "fp8_row", "int8": "int8_row", "int4": "int4_weight_only"}
"""Scheme of products by precision: 8 bits on both sides, 4 bits of weights alone."""
NO_CONVOLUTION = "weights alone in int4 are not modelled for convolutions"
"""What the row of int4 leaves out."""
_PRODUCTS = ("gemm", "grouped_gemm", "conv")


def narrow_step(half: Workload, precision: str) -> Workload | str:
    """Return a step in bf16 with the products of its weights in a narrow format, or why there is none.

    All products with weights of their own take part, the first and the last included.
    """
    calls = tuple(
        replace(call, module=f"0.{call.module}") if call.case is not None and call.case.op in _PRODUCTS else call
        for call in half.calls
    )  # what is quantised are repeated layers, which numbers in their names tell
    try:
        return with_quantised_weights(replace(half, calls=calls), weight_format(NARROW[precision]))
    except SpecError as error:
        if precision == "int4" and _wide_convolutions(half):
            return f"{NO_CONVOLUTION}, which hold most of the weights here; fp8 and int8 cover them"
        return str(error).partition(": ")[2].partition("; ")[0]


def convolution_note(step: Workload, precision: str) -> str:
    """Return which convolutions of a narrow step stay in 16 bits, in words; empty where none does."""
    count = _wide_convolutions(step) if precision in NARROW else 0
    why = f"; {NO_CONVOLUTION}" if precision == "int4" else ""
    return f"{counted(count, 'convolution')} stay{'s' * (count == 1)} in {WIDE_FORMAT}{why}" if count else ""


def _wide_convolutions(step: Workload) -> int:
    cases = [call.case for call in step.calls if call.case is not None and call.case.op.startswith("conv")]
    return sum(dict(case.dtypes)["dtype"] == WIDE_FORMAT for case in cases)
