"""Report of an engine's fitted host times: what each means, and latencies before and after beside the measured."""

import json
from dataclasses import asdict

from nearpeak.core.systems.engine_fit import MEANINGS, EngineFit
from nearpeak.reports.brief_text import brief
from nearpeak.reports.document import Details, Document, Table, Text, columns


def to_json(fit: EngineFit) -> str:
    """Return the fit as one JSON line."""
    return json.dumps(asdict(fit), allow_nan=False)


def document_of(fit: EngineFit, out: str = "") -> Document:
    """Return the fit as a document.

    Args:
        out: the file that was written; empty for none.
    """
    before, after = (100 * fit.error_ratio(is_after=is_after) for is_after in (False, True))
    rows = [(name, fit.before_s[name], fit.after_s[name], MEANINGS[name]) for name in fit.after_s]
    points = [
        (point.name, point.measured_s, point.before_s, point.after_s, point.after_s / point.measured_s - 1)
        for point in fit.points
    ]
    grown = max(fit.after_s, key=lambda name: fit.after_s[name] - fit.before_s[name])
    use = f"use it: nearpeak plan serve … --engine {out}" if out else "--out FILE writes it for --engine FILE"
    return Document(
        title=f"{fit.engine} fitted to {len(fit.points)} latencies of {fit.model} on {fit.target}",
        lead=f"Median error {before:.1f} % before, {after:.1f} % after; most moved {grown}, from "
        f"{brief(fit.before_s[grown], 's')} to {brief(fit.after_s[grown], 's')}.",
        blocks=[
            Table(columns=columns("host time", "#before_s|before", "#after_s|fitted", "~>what it is"), rows=rows,
                  name="scalars", caption="Host times"),
            Text(use),
            Details("Latencies measured, before and after (--why)", (
                Table(columns=columns("~run", "#measured_s|measured", "#before_s|before", "#after_s|fitted",
                                      "#error_ratio|error"), rows=points, name="latencies"),
                Text("The fit sees these latencies: check it on a load that it has not seen."),
            )),
        ],
        kicker="Engine calibration",
    )  # fmt: skip
