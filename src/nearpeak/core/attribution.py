"""What a change is put down to: the two sides, what they share with other changes, and effects taken apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.paired import Judgement

INFRA, NOT_CODE, CO_MOVEMENT, STACK, FACTORIAL, DEVICE = (
    "infra", "not-code", "co-movement", "stack", "factorial", "device",
)  # fmt: skip
"""Steps of an attribution, in the order in which they are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Last good or first bad of one series."""

    code_digest: str = ""
    """Digest of the machine code; empty where unknown."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    """How the kernel was launched."""
    stack: tuple[tuple[str, str], ...] = ()
    """Software components and versions."""
    faults: tuple[str, ...] = ()
    """What was wrong with the machine meanwhile: throttled, foreign processes, memory errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One thing that a change may be put down to."""

    step: str
    """`infra`, `not-code`, `co-movement`, `stack`, `factorial` or `device`."""
    axis: str
    """`commit`, `component`, `driver`, `device`, `host`, `code`, ….; empty where it is no axis."""
    key: str
    """Which value of the axis."""
    text: str
    """Why, in one sentence."""
    chance_ratio: float | None = None
    """Chance that so much would come together by accident; none where none was computed."""
    final: bool = False
    """Whether the steps after it need not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialEffects:
    """Old and new code on old and new stack, taken apart."""

    code: Judgement
    """What the code did, over both stacks."""
    stack: Judgement
    """What the stack did, over both codes."""
    interaction: Judgement
    """What they did only together."""
