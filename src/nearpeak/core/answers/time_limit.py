"""A time or rate that a step has to keep, and whether it is expected to."""

from dataclasses import dataclass

from nearpeak.core.answers.items import Items
from nearpeak.errors import SpecError

YES, NO, OPEN = "yes", "no", "open"
SYNONYMS = {"frame": "image", "img": "image", "tok": "token", "request": "sample", "sequence": "sample"}
"""Names of items that mean another one."""
ANY_ITEM = ("item",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """What was asked for, as 20 ms a token or 30 frames a second."""

    text: str
    """As the user wrote it."""
    noun: str
    """Item that it is about; `step` for the whole step."""
    value_s: float
    """Time per item."""
    is_rate: bool
    """Whether it was stated as items per second, of all sequences of a batch together."""

    def step_s(self, items: Items) -> float:
        """Return the time that a step may take.

        Raises:
            SpecError: the step works on other items.

        >>> limit = TimeLimit(text="30fps", noun="frame", value_s=1 / 30, is_rate=True)
        >>> round(limit.step_s(Items(noun="image", count=8)), 4)
        0.2667
        """
        if self.noun == "step":
            return self.value_s
        if self.noun not in ANY_ITEM and SYNONYMS.get(self.noun, self.noun) != items.noun:
            others = "" if items.noun == "step" else f" or '20 ms/{items.noun}'"
            raise SpecError(
                f"--within {self.text!r}: this step works on {items.noun}s, not on {self.noun}s; e.g. '20 ms'{others}"
            )
        return self.value_s if items.is_one_each and not self.is_rate else self.value_s * items.count


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitVerdict:
    """Whether a step keeps a limit."""

    limit: TimeLimit
    """What was asked for."""
    allowed_s: float
    """Time that the step may take."""
    expected_s: float | None
    """Expected time of the step; none without a prediction."""
    low_s: float | None
    """Low end of its 90 % interval."""
    high_s: float | None
    """High end of its 90 % interval."""
    bound_s: float
    """Time that nothing can beat."""

    @property
    def answer(self) -> str:
        """`yes`, `no`, or `open` where nothing is predicted and the bound does not decide it."""
        if self.bound_s > self.allowed_s:
            return NO
        if self.expected_s is None:
            return OPEN
        return YES if self.expected_s <= self.allowed_s else NO
