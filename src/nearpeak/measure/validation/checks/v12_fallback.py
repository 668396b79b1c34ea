"""V12: what was converted to another backend says which nodes stayed behind, completely and consistently."""

from nearpeak.core.validation import PASS, SKIPPED, CheckResult
from nearpeak.measure.validation._trial import Trial

FIELDS = ("node", "target", "reason")


def fallback(trial: Trial) -> CheckResult:
    """Return whether the ledger's rows name node, target and reason, none twice; rows that fell back fail."""
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
    if ledger:
        first = ledger[0]
        reason = f"{len(ledger)} nodes fell back, first {first['node']} to {first['target']}: {first['reason']}"
        return CheckResult(check="V12", status="FALLBACK", reason=reason)
    return CheckResult(check="V12", status=PASS)


CHECK = fallback
