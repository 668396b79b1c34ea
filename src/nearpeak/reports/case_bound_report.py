"""The bound of one case, for people and as JSON."""

import json

from nearpeak.core.answers.bound import ASSUMPTIONS, Bound
from nearpeak.core.answers.proof import Proof
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.reports.figure_text import hung, interval
from nearpeak.units import show


def to_json(case: Case, target: Target, bound: Bound, proof: Proof) -> str:
    """Return the bound as one JSON line; its `proof` is what `nearpeak.bounds.proof_checker.verify` checks."""
    record = RECORDS.plain(proof)
    terms = [{"name": t.name, "time_s": t.time_s, "status": t.status, "formula": t.formula} for t in bound.terms]
    return json.dumps(
        {
            "case": case.record(), "digest": case.digest, "target": target.name,
            "bound_s": bound.time_s, "limiter": bound.limiter, "terms": terms,
            "roofline_s": bound.roofline_s, "launch_floor_s": bound.launch_floor_s,
            "interval": record["interval"], "assumptions": list(bound.assumptions),
            "unverified": list(target.unverified), "proof": record,
        }
    )  # fmt: skip


def to_terminal(label: str, target: Target, bound: Bound) -> str:
    """Return the bound as a few lines of text within 80 columns."""
    lines = [
        label,
        f"  on {target.title} ({target.name}): at least {show(bound.time_s, 's')}, limited by {bound.limiter}",
    ]
    if bound.interval is not None:
        lines.append(f"  {interval(bound.interval)}")
    for term in sorted(bound.terms, key=lambda one: -one.time_s):
        lines.append(f"    {term.name:8} {show(term.time_s, 's'):>10}  {term.status:7} {term.formula}")
    lines.append(f"  plain roofline at documented rates: {show(bound.roofline_s, 's')}")
    if bound.launch_floor_s is not None:
        lines.append(f"  launch floor, beside the bound: {show(bound.launch_floor_s, 's')}")
    lines += [f"  {key}: {ASSUMPTIONS[key]}" for key in bound.assumptions]
    if target.unverified:
        lines.append(f"  derived or second-hand figures: {', '.join(target.unverified)}")
    return "\n".join(hung(lines))
