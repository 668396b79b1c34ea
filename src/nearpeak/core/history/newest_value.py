"""Verdict on the newest values of a series against earlier ones, and whether several runs confirm it."""

from dataclasses import dataclass

from nearpeak.core.runs.paired_rounds import REGRESSION, Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether a slowdown is more than an excursion of one run."""

    confirmed: bool
    """Whether commits in a row, several runs, or its size say that it is there."""
    text: str
    """What says so, or what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryJudgement:
    """A commit against its baseline in history."""

    judgement: Judgement
    """The verdict at equal clocks where these are known, else on the values as they are."""
    plain: Judgement
    """The verdict on the values as they are."""
    clock_ratio: float | None = None
    """Clock of the judged commit over that of its baseline; none where one is unknown."""
    share_known: bool = True
    """Whether it is known how much of the clock shows; else the verdict holds for none and for all of it."""
    confirmation: Confirmation | None = None
    """What bears a regression out; none where the verdict is another one."""

    @property
    def fails(self) -> bool:
        """Say whether it is a regression that is borne out."""
        bears = self.confirmation is not None and self.confirmation.confirmed
        return self.judgement.verdict == REGRESSION and bears
