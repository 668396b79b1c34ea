"""The tolerance of an operator: permitted errors, and the inputs for which they hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CONTRACTS = ("contraction", "reduction", "pointwise", "normalisation", "sampling", "decomposition", "exact")
"""Kinds of numerics contracts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How close an implementation must come to the float64 reference."""

    kind: str
    """`contraction`, `reduction`, `pointwise`, `normalisation` (any chain), `sampling` (positions are rounded too),
    `decomposition` (stable by norm, not element by element) or `exact`."""
    reduction: str = ""
    """Axes whose product is the length of the longest sum, e.g. `k`; empty when nothing is summed."""
    ulp_count: float = 4.0
    """Permitted error in units of the output's last place, beyond what the sum's length explains."""
    steps_count: int = 0
    """Intermediate results that an implementation may store in the operator's own format instead of fp32."""
    step_if: str = ""
    """Flag under which there is one more of these: a sum that is stored before a bias is added."""
    least_format: str = ""
    """Narrowest format of floats for which there is a contract, where there is none for narrower ones."""
    not_in_fp16: tuple[str, ...] = ()
    """Choices, as values of attributes, without a contract for fp16, whose exponents what they compute soon leaves."""
    alignment_bytes: int = 16
    """What the first element of each tensor must be a multiple of."""
    below: Mapping[str, str] = field(default_factory=dict)
    """Integer inputs whose values stay below an axis, a multiple of one such as `2*tests`, or a number: indices,
    targets, offsets."""
    distinct: tuple[str, ...] = ()
    """Integer inputs no two values of which are equal along the last dimension: positions that are written once."""
    repeats_if: tuple[str, ...] = ()
    """Flags under which they may be equal: what is written to one place is added up, or the same."""
    ignored: tuple[str, ...] = ()
    """Integer inputs some of whose elements may be IGNORED, which marks what does not count."""
    positive: tuple[str, ...] = ()
    """Inputs that are positive by their meaning: scales, running variances, states of optimizers; with a choice before
    a colon where it is so for that choice only, as `igamma:a`."""
    states: tuple[str, ...] = ()
    """Inputs that are 0 before the first of many steps: averages of optimizers."""
    special: str = "propagate"
    """What NaN and infinities in the inputs do: `propagate` as in the reference, `unspecified`, or the inputs of which
    the former holds."""
    collapses: bool = False
    """Whether an infinity may make NaN of results that it makes 0: those that a norm of it divides."""
    by_element: tuple[str, ...] = ()
    """Choices, as values of attributes, under which a decomposition is stable element by element, too."""
    unspecified: tuple[str, ...] = ()
    """Choices, as values of attributes or `name=value`, for which NaN and infinities are left open."""
    exact: tuple[str, ...] = ()
    """Choices, as values of attributes or `name=value`, under which results are selected or counted: exact, whatever
    the kind says."""
    picks: Mapping[str, str] = field(default_factory=dict)
    """Outputs that are positions along the last dimension of an input, or of what `ranked` gives, by its name: any of
    equal values will do."""
    rounds: tuple[str, ...] = ()
    """Further kinds of inputs under which it must hold: `large` (exponentials overflow without care), `small` or
    `tiny` (a misplaced epsilon shows), `ties` (the first of equal values counts), `close` (values that differ in their
    last places only, which fewer bits do not tell apart), `far` (whole numbers have all digits of their format),
    `jumps` or `jumps_first`, and `nonfinite` (numbers at which results jump, of all inputs or the first, and no finite
    ones), `small_first` or `small_last` (that input far below the others, as sizes of one kind hide what one of them
    does), `first_step` (`states` of 0); with a choice after a colon where it is so for that choice only."""
    forward_only: tuple[str, ...] = ()
    """Choices under which the gradient's reference does not hold, by name."""
    gates: str = ""
    """`always` where gates or probabilities, numbers of size 1 that no input shows, are added and subtracted on the
    way, or the choice under which they are; `targets` where that happens, in gradients, to the largest element of each
    row alone: the target of a loss. `largest` where errors are as large as the largest result allows."""

    gate_error_count: float = 0.0
    """By how many roundoffs of the arithmetic gates, which are of size 1, may be off: what GPUs compute exponentials
    and hyperbolic tangents with in a few steps errs by so much."""

    def limit(self, name: str, arguments: Mapping[str, Any]) -> int:
        """Return below what the values of the integer input `name` stay, at least 1; 0 where nothing is said.

        >>> Numerics(kind="exact", below={"t": "2*tests"}).limit("t", {"tests": 4})
        8
        """
        factor, _, axis = self.below.get(name, "0").rpartition("*")
        if axis.isdigit():
            return int(axis)
        return int(factor or 1) * max(int(arguments[axis]), 1)
