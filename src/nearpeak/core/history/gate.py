"""Merge gate: its rules, the verdict of each rule, and the resulting exit code."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.runs.paired_rounds import Judgement

BASELINES = ("previous", "tag", "rolling", "bound", "prediction")
"""Reference of a rule."""
FIELDS = ("op", "target", "runner", "model", "team", "branch", "case")
"""By what a rule selects series."""
ON_INCONCLUSIVE = ("stop", "pass", "fail")
"""What an inconclusive line does: it makes the gate inconclusive, it passes, it fails."""
PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
"""Verdicts of lines and of the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """One rule of a policy."""

    name: str
    """Its name in reports."""
    baseline: str
    """One of BASELINES."""
    tolerance_ratio: float = 0.02
    """Change up to which two times count as the same; for `prediction`, how much longer a time may be."""
    least_ratio: float | None = None
    """For `bound`: part of the speed of light that must be reached."""
    tag: str = ""
    """For `tag`: the revision or named baseline to compare with."""
    window_count: int = 0
    """For `rolling`: revisions before the candidate that are taken together."""
    select: Mapping[str, str] = field(default_factory=dict)
    """Patterns with `*` and `?` by field of FIELDS; all must match."""
    leave_out: Mapping[str, str] = field(default_factory=dict)
    """Patterns by field; a series that matches any is not judged."""
    inconclusive: str = "stop"
    """One of ON_INCONCLUSIVE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """Requirement on a change."""

    name: str
    """Name of the policy: reports of one policy replace each other."""
    source: str
    """File that states it."""
    rules: tuple[GateRule, ...]
    """All rules of a gate; each is evaluated on every series that it selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSubject:
    """A series at the revision that is judged."""

    series: str
    """Name of the series in reports."""
    fields: Mapping[str, str]
    """What rules select by, by name of FIELDS."""
    times_s: tuple[float, ...]
    """Median of each launch at the judged revision, or the samples of the only one; empty where none has a time."""
    outcome: str = ""
    """How the measurement ended where it has no time: `incorrect`, `infra`, …."""
    bound_s: float | None = None
    """Time nothing can beat."""
    predicted_s: float | None = None
    """Achievable time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """Verdict of one rule on one series."""

    rule: str
    """Name of the rule."""
    series: str
    """Name of the series; empty where the rule selects none."""
    verdict: str
    """`pass`, `fail` or `inconclusive`."""
    exit_code: int
    """What the line asks of the gate: 0, 3, 10, 11 or 12."""
    text: str
    """Why, with the figures, in one sentence."""
    judgement: Judgement | None = None
    """Ratio and interval where two revisions were compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Result of a gate."""

    policy: GatePolicy
    """The rule."""
    revision: str
    """Revision that was judged."""
    verdict: str
    """`pass`, `fail` or `inconclusive`."""
    exit_code: int
    """Exit code of the command."""
    lines: tuple[GateLine, ...]
    """Failures first, then inconclusive ones, then what passes."""
