"""The tolerance of an operator: permitted errors, and the inputs for which they hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("contraction", "reduction", "pointwise", "normalisation", "sampling", "decomposition", "exact")
"""Kinds of tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How close an implementation must come to the float64 reference."""

    kind: str
    """`contraction`, `reduction`, `pointwise`, `normalisation` (any chain), `sampling` (positions are rounded too),
    `decomposition` (stable by norm, not element by element) or `exact`."""
    reduction: str = ""
    """Axes whose product is the length of the longest sum, e.g. `k`; empty when nothing is summed."""
    ulp_count: float = 4.0
    """Permitted error in units in the last place of the output, in addition to the error of the longest sum."""
    steps_count: int = 0
    """Number of intermediate results that may be stored in the operator's format instead of fp32."""
    step_if: str = ""
    """Flag that adds one such intermediate: a sum that is stored before a bias is added."""
    least_format: str = ""
    """Narrowest float format with a tolerance; empty for no limit."""
    not_in_fp16: tuple[str, ...] = ()
    """Choices, as values of attributes, without a tolerance in fp16, whose range their intermediates exceed."""
    alignment_bytes: int = 16
    """Required alignment of the first element of each tensor."""
    below: Mapping[str, str] = field(default_factory=dict)
    """Upper limits of integer inputs (indices, targets, offsets): an axis, a multiple as `2*tests`, or a number."""
    distinct: tuple[str, ...] = ()
    """Integer inputs whose values are distinct along the last dimension: positions that are written once."""
    repeats_if: tuple[str, ...] = ()
    """Flags under which these values may repeat, because writes to one position are added up or equal."""
    ignored: tuple[str, ...] = ()
    """Integer inputs in which IGNORED marks rows that do not count."""
    positive: tuple[str, ...] = ()
    """Inputs that must be positive: scales, running variances, optimizer states; `choice:input`, such as `igamma:a`,
    where this holds for one choice only."""
    states: tuple[str, ...] = ()
    """Inputs that are 0 before the first step: moving averages of optimizers."""
    special: str = "propagate"
    """Handling of NaN and infinities in the inputs: `propagate` as in the reference, `unspecified`, or the names of the
    inputs from which they propagate."""
    collapses: bool = False
    """Whether an infinity may give NaN where the reference gives 0, as in a division by an infinite norm."""
    by_element: tuple[str, ...] = ()
    """Choices, as values of attributes, under which a decomposition is stable element by element."""
    unspecified: tuple[str, ...] = ()
    """Choices, as values of attributes or `name=value`, for which NaN and infinities are unspecified."""
    exact: tuple[str, ...] = ()
    """Choices, as values of attributes or `name=value`, whose results are selected or counted and so must be exact,
    independently of the kind."""
    picks: Mapping[str, str] = field(default_factory=dict)
    """Outputs that are positions along the last dimension of an input or of a result of `ranked`, by its name: with
    ties, any of the tied positions is correct."""
    rounds: tuple[str, ...] = ()
    """Further distributions of inputs for which it must hold: `large` (exponentials overflow without care), `small` or
    `tiny` (a misplaced epsilon shows), `ties` (the first of equal values counts), `close` (values that differ in their
    last places only, which fewer bits do not tell apart), `far` (whole numbers have all digits of their format),
    `jumps` or `jumps_first`, and `nonfinite` (numbers at which results jump, of all inputs or the first, and no finite
    ones), `small_first` or `small_last` (that input far below the others, as sizes of one kind hide what one of them
    does), `first_step` (`states` of 0); with a choice after a colon where it is so for that choice only."""
    forward_only: tuple[str, ...] = ()
    """Choices, by name, for which the gradient's reference does not hold."""
    gates: str = ""
    """`always` where gates or probabilities, numbers of size 1 that no input shows, are added and subtracted on the
    way, or the choice under which they are; `targets` where that happens, in gradients, to the largest element of each
    row alone: the target of a loss. `largest` where errors are as large as the largest result allows."""

    gate_error_count: float = 0.0
    """By how many roundoffs of the arithmetic gates, which are of size 1, may be off: what GPUs compute exponentials
    and hyperbolic tangents with in a few steps errs by so much."""

    def limit(self, name: str, arguments: Mapping[str, Any]) -> int:
        """Return the exclusive upper limit of the integer input `name`, at least 1; 0 without a limit.

        >>> Tolerance(kind="exact", below={"t": "2*tests"}).limit("t", {"tests": 4})
        8
        """
        factor, _, axis = self.below.get(name, "0").rpartition("*")
        if axis.isdigit():
            return int(axis)
        return int(factor or 1) * max(int(arguments[axis]), 1)
