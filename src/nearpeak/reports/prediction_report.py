"""Report of the prediction of one case, as text and JSON."""

import dataclasses
import json
from collections.abc import Sequence

from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.reports.document import Block, Document, Table, columns
from nearpeak.reports.expected_time_text import DISTANCE, energy_line
from nearpeak.units import show

_NOTHING = {"classical": "nothing", "any": "no algorithm, Winograd's and FFT among them,"}
"""What the bound is of, by the algorithms that it admits."""
_NAMED = 4
"""Figures that are named of a device of one's own."""
_SEEN_RATIO = 5e-4
"""Share of a time from which on a part is shown on its own: smaller ones would read 0.0 %."""
BORROWED = ", but of other operators, not of this one: the interval is wider"


def to_json(case: Case, target: Target, found: Prediction) -> str:
    """Return the prediction as one JSON line, its scalars and their provenance included."""
    used = found.calibration
    scalars = {one.name: {"value": one.value, "identified": one.identified} for one in used.coefficients}
    return json.dumps(
        {
            "case": case.record(), "digest": case.digest, "target": target.name,
            "predicted_s": found.time_s, "low_s": found.low_s, "high_s": found.high_s, "limiter": found.limiter,
            "bound_s": found.bound_s, "algorithm": found.algorithm,
            "waterfall_s": dict(found.waterfall_s), "regime": found.regime,
            "distance_count": found.distance_count, "notes": list(found.notes),
            "energy": None if found.energy is None else dataclasses.asdict(found.energy),
            "calibration": {
                "name": used.name, "version": used.version, "row_count": used.row_count, "source": used.source,
                "is_borrowed": used.is_borrowed, "differing": list(used.differing),
                "scalars": scalars,
            },
        }
    )  # fmt: skip


def own_device(name: str, differing: Sequence[str]) -> str:
    """Return that a device of a file of one's own is not the shipped one of its name.

    >>> own_device("h100_sxm", ["sm_count"])
    'your h100_sxm is not the one that ships and was measured: sm_count differs'
    """
    more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
    verb = "differs" if len(differing) == 1 else "differ"
    return f"your {name} is not the one that ships and was measured: {', '.join(differing[:_NAMED])}{more} {verb}"


def document_of(label: str, target: Target, found: Prediction) -> Document:
    """Return the prediction as a document."""
    used = found.calibration
    parts = [(name, time_s, f"{100 * time_s / found.time_s:.1f} %") for name, time_s in _parts(found)]
    loose = [one.name for one in used.coefficients if not one.identified]
    blocks: list[Block] = [
        f"  on {target.title} ({target.name}): about {show(found.time_s, 's')}, 90 % between {show(found.low_s, 's')} "
        f"and {show(found.high_s, 's')}",
        f"  {_NOTHING[found.algorithm]} can beat {show(found.bound_s, 's')}; largest part: {found.limiter}",
        Table(columns=columns("part|", "#time_s|", "#share|"), rows=parts, indent_count=4),
        f"  energy: {energy_line(found.energy)}" if found.energy is not None else "",
        *(f"  {note}" for note in found.notes),
        f"  {DISTANCE[found.distance_count]}{BORROWED if used.is_borrowed else ''}",
        f"  {own_device(target.name, used.differing)}" if used.differing else "",
        f"  scalars {used.name}, form {used.version}, {used.row_count} measurements: {used.source}",
        f"  not pinned down by them: {', '.join(loose)}" if loose else "",
    ]
    return Document(title=label, blocks=blocks, kicker="Prediction")


def _parts(found: Prediction) -> list[tuple[str, float]]:
    """Return the parts of a time, largest first; those too small to be seen, where they are several, as one."""
    ordered = sorted(found.terms, key=lambda one: -abs(one.time_s))
    small = [one.time_s for one in ordered if abs(one.time_s) < _SEEN_RATIO * found.time_s]
    if len(small) < 2:
        return [(one.name, one.time_s) for one in ordered]
    seen = ordered[: len(ordered) - len(small)]
    return [(one.name, one.time_s) for one in seen] + [(f"{len(small)} smaller", sum(small))]
