"""Result of fitting a serving engine's host times to a user's benchmark: fitted values, errors before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

MEANINGS = {
    "host_step_s": "host time of every step that the device waits for: scheduling, input preparation, sampling",
    "host_sequence_s": "the same for each sequence of a step: block tables, detokenisation, stop checks",
    "host_call_s": "launch of one kernel outside a captured graph",
    "host_prompt_s": "what a step with prompts takes on the host beyond others",
}
"""What each scalar of a fit is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPoint:
    """One run of a benchmark: equal requests at constant concurrency."""

    name: str
    """File, and line or row in it."""
    concurrency: int
    """Clients."""
    input_tokens: int
    """Tokens of a prompt."""
    output_tokens: int
    """Generated tokens."""
    ttft_s: float | None
    """Time to the first token; none where it was not measured."""
    tpot_s: float | None
    """Time per output token after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPoint:
    """A measured latency beside what is predicted before and after the fit."""

    name: str
    """Run and latency."""
    measured_s: float
    """Measured."""
    before_s: float
    """Predicted with the host times that the fit started from."""
    after_s: float
    """Predicted with the fitted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit:
    """Host times that meet a benchmark best."""

    engine: str
    """Engine family that the fit started from."""
    model: str
    """Model."""
    target: str
    """Device."""
    before_s: Mapping[str, float]
    """Scalars before."""
    after_s: Mapping[str, float]
    """Scalars after, at most four."""
    points: tuple[FittedPoint, ...]
    """Each latency that was fitted to."""
    text: str
    """TOML file of the fitted engine, which `nearpeak plan serve --engine FILE` reads."""

    def error_ratio(self, *, is_after: bool) -> float:
        """Return the median of the relative errors before or after the fit."""
        ratios = sorted(
            abs((point.after_s if is_after else point.before_s) / point.measured_s - 1) for point in self.points
        )
        middle = len(ratios) // 2
        return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
