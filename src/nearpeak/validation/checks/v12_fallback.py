"""V12, fallback: the ledger of a converted implementation lists completely what did not run on its backend."""

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.validation.running.trial import Trial

FIELDS = ("node", "target", "reason")
SLACK = 1e-6
"""Amount by which the sum of the rounded shares may exceed 1."""


def fallback(trial: Trial) -> CheckResult:
    """Return whether the ledger names node, target and reason once each and its shares add up; a fallback fails.

    Nodes for which the runner prefers a library's kernel are listed, and are no fallback.
    """
    ledger = trial.implementation.ledger
    if ledger is None:
        return CheckResult(check="V12", status=SKIPPED, reason="the implementation was not converted")
    for row in ledger:
        missing = [name for name in FIELDS if not row.get(name)]
        if missing:
            reason = f"a row of the ledger lacks {', '.join(missing)}"
            return CheckResult(check="V12", status="FALLBACK", reason=reason)
    nodes = [row["node"] for row in ledger]
    twice = sorted({str(node) for node in nodes if nodes.count(node) > 1})
    if twice:
        return CheckResult(check="V12", status="FALLBACK", reason=f"the ledger lists {twice[0]} twice")
    for share in ("flop_ratio", "time_ratio"):
        total = sum(row.get(share) or 0.0 for row in ledger)
        if not 0.0 <= total <= 1.0 + SLACK:
            return CheckResult(check="V12", status="FALLBACK", reason=f"the ledger's {share} adds up to {total:.3g}")
    fallen = [row for row in ledger if not row.get("chosen")]
    if fallen:
        first = fallen[0]
        reason = f"{len(fallen)} nodes fell back, first {first['node']} to {first['target']}: {first['reason']}"
        return CheckResult(check="V12", status="FALLBACK", reason=reason)
    return CheckResult(check="V12", status=PASS)


CHECK = fallback
