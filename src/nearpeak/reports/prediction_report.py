"""Report of the prediction of one case, as text and JSON."""

import dataclasses
import json
from collections.abc import Sequence

from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.reports import brief_text as text
from nearpeak.reports import figure_text as words
from nearpeak.reports.document import WHY, Block, Details, Document, Table, columns
from nearpeak.reports.expected_time_text import DISTANCE, NEARNESS, energy_line
from nearpeak.reports.part_names import PART_WORDS

_NOTHING = {"classical": "which nothing beats", "any": "which no algorithm beats, Winograd's and FFT among them"}
"""What the bound says, by the algorithms that it admits."""
_NAMED = 4
"""Figures that are named of a device of one's own."""
_SEEN_RATIO = 5e-4
"""Share of a time from which on a part is shown on its own: smaller ones would read 0.0 %."""
BORROWED = ", but of other operators, not of this one: the interval is wider"

BEST_OF_ALL = "software: the best of the frameworks measured, case by case; --software names one of them"


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
            "distance_count": prediction.distance_count, "holds_for": prediction.holds_for,
            "notes": list(prediction.notes),
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


def document_of(
    label: str, target: Target | None, prediction: Prediction, narrower: tuple[str, Prediction] | None = None
) -> Document:
    """Return the prediction as a document: the answer, the parts of the time, and folded what it rests on.

    Args:
        target: the device, which a prediction does not name; nothing is said of it where it is none.
        narrower: the same in a narrower number format, with the name of that.
    """
    used, nearness = prediction.calibration, NEARNESS[prediction.distance_count]
    parts = [(name, time_s, words.percent(time_s / prediction.time_s)) for name, time_s in _parts(prediction)]
    is_best = not any("of the frameworks measured" in note for note in prediction.notes)
    loose = [coefficient.name for coefficient in used.coefficients if not coefficient.identified]
    rest: list[Block] = [
        *(f"{name}: {PART_WORDS[name]}" for name, _ in _parts(prediction) if name in PART_WORDS),
        f"holds for {prediction.holds_for}",
        f"energy: {energy_line(prediction.energy)}" if prediction.energy is not None else "",
        *prediction.notes,
        BEST_OF_ALL if is_best and "best implementation" in used.source else "",
        f"nearness of the data: {DISTANCE[prediction.distance_count]}",
        f"coefficients {used.name}, kernel model {used.version}, {used.row_count} measurements: {used.source}",
        f"not pinned down by them: {', '.join(loose)}" if loose else "",
    ]
    blocks: list[Block] = [
        Table(columns=columns("part|", "#time_s|", "#share|"), rows=parts, indent_count=2),
        f"{nearness.partition(', so ')[0]}{BORROWED}" if used.is_borrowed else nearness,
        own_device(target.name, used.differing) if target and used.differing else "",
        Details(WHY, tuple(rest)),
    ]
    place = f"on {target.title} ({target.name})" if target else ""
    lead = _headline(prediction, narrower)
    return Document(title=label, subject=place, lead=lead, blocks=blocks, kicker="Prediction")


def _headline(prediction: Prediction, narrower: tuple[str, Prediction] | None) -> str:
    """Return time, limit, the largest cause of the gap between them, and what a narrower format takes."""
    time_s, bound_s = prediction.time_s, prediction.bound_s
    ends = text.ends(prediction.low_s, prediction.high_s, time_s, "s")
    sentence = (
        f"{text.brief(time_s, 's')} ({ends}); limit {text.brief(bound_s, 's')}, {_NOTHING[prediction.algorithm]}."
    )
    gap = {term.name: term.time_s for term in prediction.terms}
    gap[prediction.limiter] -= min(bound_s, time_s)
    cause = max(gap, key=lambda name: gap[name])
    if gap[cause] > 0 and time_s > bound_s:
        share = text.whole_percent(min(gap[cause] / (time_s - bound_s), 1.0))
        meaning = "beyond the limit" if cause == prediction.limiter else PART_WORDS.get(cause, cause)
        sentence += f" {share} of the gap: {cause}, {meaning}."
    energy = prediction.energy
    if energy is not None:
        sentence += f" {text.brief(energy.energy_j, 'J')} each."
    if narrower is not None and narrower[1].time_s < time_s:
        sentence += f" In {narrower[0]} where accuracy allows: about {text.brief(narrower[1].time_s, 's')}."
    return sentence


def _parts(prediction: Prediction) -> list[tuple[str, float]]:
    """Return the parts of a time, largest first; those too small to be seen, where they are several, as one."""
    ordered = sorted(prediction.terms, key=lambda term: -abs(term.time_s))
    small = [term.time_s for term in ordered if abs(term.time_s) < _SEEN_RATIO * prediction.time_s]
    if len(small) < 2:
        return [(term.name, term.time_s) for term in ordered]
    seen = ordered[: len(ordered) - len(small)]
    return [(term.name, term.time_s) for term in seen] + [(f"{len(small)} smaller", sum(small))]
