"""Helpers shared by the opportunity rules: advice records, abstentions, alternatives of a case."""

from nearpeak.core.answers.analysis import Opportunity
from nearpeak.core.answers.gap import ESTIMATED, Abstention, Advice, Alternative, Gap


def advice(kind: str, title: str, where: str, gain_s: float, evidence: str, basis: str = ESTIMATED) -> Advice:
    """Return advice; every gain is the most that it saves over all calls."""
    opportunity = Opportunity(kind=kind, title=title, where=where, gain_s=gain_s, evidence=evidence)
    return Advice(opportunity=opportunity, basis=basis)


def abstention(kind: str, gap: Gap, reason: str) -> Abstention:
    """Return the reason why the rule `kind` gives no advice on `gap`."""
    return Abstention(kind=kind, where=named(gap), reason=reason)


def named(gap: Gap) -> str:
    """Return label and device of a case, so that advice names its device."""
    return f"{gap.timed.label} on {gap.timed.target}" if gap.timed.target else gap.timed.label


def alternatives(gap: Gap, kind: str) -> tuple[Alternative, ...]:
    """Return the alternatives of one kind for the work of `gap`."""
    return tuple(alternative for alternative in gap.timed.alternatives if alternative.kind == kind)


def axis(gap: Gap, name: str) -> int:
    """Return an extent of the case; 1 where it has no such axis."""
    return dict(gap.timed.case.axes).get(name, 1)


def is_product(gap: Gap) -> bool:
    """Say whether the case is a matrix product with axes m, n and k."""
    return {"m", "n", "k"} <= dict(gap.timed.case.axes).keys() and gap.timed.matrix_flop > 0
