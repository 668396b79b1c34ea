"""Report of the bound of one case, as text and JSON."""

import json

from nearpeak.core.answers.bound import ASSUMPTIONS, Bound
from nearpeak.core.answers.proof import Proof
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.reports.document import Block, Document, Table, columns
from nearpeak.reports.figure_text import interval
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


def document_of(label: str, target: Target | None, bound: Bound) -> Document:
    """Return the bound as a document; without a target, which a bound does not name, it says none."""
    place = f"on {target.title} ({target.name}): " if target is not None else ""
    terms = [
        (term.name, term.time_s, term.status, term.formula)
        for term in sorted(bound.terms, key=lambda term: -term.time_s)
    ]
    floor_s = bound.launch_floor_s
    blocks: list[Block] = [
        f"  {place}at least {show(bound.time_s, 's')}, limited by {bound.limiter}",
        f"  {interval(bound.interval)}" if bound.interval is not None else "",
        Table(columns=columns("term|", "#time_s|", "status|", "~formula|"), rows=terms, indent_count=4),
        f"  plain roofline at documented rates: {show(bound.roofline_s, 's')}",
        f"  launch floor, not in the bound: {show(floor_s, 's')}" if floor_s is not None else "",
        *(f"  {key}: {ASSUMPTIONS[key]}" for key in bound.assumptions),
        f"  derived or second-hand figures: {', '.join(target.unverified)}" if target and target.unverified else "",
    ]
    return Document(title=label, blocks=blocks, kicker="Bound")
