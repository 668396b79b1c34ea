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
"""Subject of the bound, by the algorithms that it admits."""
_NAMED = 4
"""Figures that are named of a device of one's own."""
_SEEN_RATIO = 5e-4
"""Share of a time from which on a part is shown on its own: smaller ones would read 0.0 %."""
BORROWED = ", but of other operators, not of this one: the interval is wider"


def to_json(case: Case, target: Target, prediction: Prediction) -> str:
    """Return the prediction as one JSON line, its coefficients and their provenance included."""
    used = prediction.calibration
    scalars = {
        coefficient.name: {"value": coefficient.value, "identified": coefficient.identified}
        for coefficient in used.coefficients
    }
    return json.dumps(
        {
            "case": case.record(), "digest": case.digest, "target": target.name,
            "predicted_s": prediction.time_s, "low_s": prediction.low_s, "high_s": prediction.high_s,
            "limiter": prediction.limiter,
            "bound_s": prediction.bound_s, "algorithm": prediction.algorithm,
            "waterfall_s": dict(prediction.waterfall_s), "regime": prediction.regime,
            "distance_count": prediction.distance_count, "notes": list(prediction.notes),
            "energy": None if prediction.energy is None else dataclasses.asdict(prediction.energy),
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


def document_of(label: str, target: Target, prediction: Prediction) -> Document:
    """Return the prediction as a document."""
    used = prediction.calibration
    parts = [(name, time_s, f"{100 * time_s / prediction.time_s:.1f} %") for name, time_s in _parts(prediction)]
    loose = [coefficient.name for coefficient in used.coefficients if not coefficient.identified]
    blocks: list[Block] = [
        f"  on {target.title} ({target.name}): about {show(prediction.time_s, 's')}, "
        f"90 % between {show(prediction.low_s, 's')} "
        f"and {show(prediction.high_s, 's')}",
        f"  {_NOTHING[prediction.algorithm]} can beat {show(prediction.bound_s, 's')}; "
        f"largest part: {prediction.limiter}",
        Table(columns=columns("part|", "#time_s|", "#share|"), rows=parts, indent_count=4),
        f"  energy: {energy_line(prediction.energy)}" if prediction.energy is not None else "",
        *(f"  {note}" for note in prediction.notes),
        f"  {DISTANCE[prediction.distance_count]}{BORROWED if used.is_borrowed else ''}",
        f"  {own_device(target.name, used.differing)}" if used.differing else "",
        f"  scalars {used.name}, form {used.version}, {used.row_count} measurements: {used.source}",
        f"  not pinned down by them: {', '.join(loose)}" if loose else "",
    ]
    return Document(title=label, blocks=blocks, kicker="Prediction")


def _parts(prediction: Prediction) -> list[tuple[str, float]]:
    """Return the parts of a time, largest first; those too small to be seen, where they are several, as one."""
    ordered = sorted(prediction.terms, key=lambda term: -abs(term.time_s))
    small = [term.time_s for term in ordered if abs(term.time_s) < _SEEN_RATIO * prediction.time_s]
    if len(small) < 2:
        return [(term.name, term.time_s) for term in ordered]
    seen = ordered[: len(ordered) - len(small)]
    return [(term.name, term.time_s) for term in seen] + [(f"{len(small)} smaller", sum(small))]
