"""Sentences on the expected time of a step: its length, distance from the bounds, and breakdown."""

import json
from collections.abc import Iterator

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.core.answers.expected_energy import ExpectedEnergy
from nearpeak.core.answers.step_prediction import CAUSES, StepPrediction
from nearpeak.reports import figure_text as words
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.reports.document import Block, Document, Heading
from nearpeak.units import show

LEAST_SHARE = 0.005
"""Causes with less of the time beyond the bounds are not named."""
DISTANCE = (
    "measured on this device",
    "no data of this device for such a case: scalars of another format, of fewer ranks, of the device as it is without "
    "'--set', or of another device of its architecture",
    "no data of this architecture: scalars of its maker's devices, by the size of their multiprocessors; or of another "
    "device of its architecture, of fewer ranks",
    "no data of this maker: scalars of another maker's devices together",
)
"""What the steps from the data mean."""


def lines_of(analysis: Analysis, target: TargetAnalysis) -> Iterator[str]:
    """Yield what is expected of a target; one sentence saying why where nothing is."""
    found = target.prediction
    if found is None:
        yield "expected time: no call of the step can be predicted on this target"
        return
    yield (
        f"expected, operator by operator: about {show(found.time_s, 's')} "
        f"({show(found.low_s, 's')} to {show(found.high_s, 's')}), {words.times(found.time_s / found.bound_s)} "
        f"the {show(found.bound_s, 's')} of the same calls' bounds"
    )
    yield f"beyond the bounds: {shares_of(found)}"
    if found.energy is not None:
        yield f"energy per step: {energy_line(found.energy)}"
    yield f"grounds: {_grounds(found)}"
    if found.unpredicted:
        count = sum(found.unpredicted.values())
        yield (
            f"not in it: {words.count(count)} of {words.count(analysis.covered_count)} calls, whose bounds add up to "
            f"{show(found.unpredicted_bound_s, 's')}"
        )


def _grounds(found: StepPrediction) -> str:
    """Return where the scalars come from, and how much of the time each of it carries where they differ."""
    steps = sorted(found.grounds_s, key=lambda one: -found.grounds_s[one])
    if len(steps) == 1:
        return DISTANCE[int(steps[0])]
    return "; ".join(
        f"{100 * found.grounds_s[one] / found.time_s:.0f} % of the time {DISTANCE[int(one)]}" for one in steps
    )


def energy_line(found: ExpectedEnergy) -> str:
    """Return energy, power and what they go to, and whether they were measured on this device."""
    order = sorted(found.parts_j, key=lambda name: -found.parts_j[name])
    parts = ", ".join(f"{name} {100 * found.parts_j[name] / found.energy_j:.0f} %" for name in order)
    grounds = "" if found.distance_count == 0 else "; no power of this device was measured, shares of its limit assumed"
    return (
        f"about {show(found.energy_j, 'J')} ({show(found.low_j, 'J')} to {show(found.high_j, 'J')}), "
        f"{show(found.power_w, 'W')} on average: {parts}{grounds}"
    )


def total(found: StepPrediction | None) -> str:
    """Return the expected time, marked ≥ where it does not hold every call; a dash where nothing is predicted."""
    return "–" if found is None else ("≥ " if found.unpredicted else "") + show(found.time_s, "s")


def shares_of(found: StepPrediction) -> str:
    """Return the causes of the time beyond the bounds with their shares, largest first."""
    whole = found.time_s - found.bound_s
    if whole <= 0:
        return "nothing"
    order = sorted(found.gap_s, key=lambda cause: -found.gap_s[cause])
    return ", ".join(
        f"{cause} {100 * found.gap_s[cause] / whole:.0f} %"
        for cause in order
        if abs(found.gap_s[cause]) >= LEAST_SHARE * whole
    )


def to_json(analysis: Analysis) -> str:
    """Return the predictions of all targets as JSON, one line each."""
    return "\n".join(
        json.dumps(
            {
                "workload": analysis.name, "step": analysis.step, "target": one.target,
                "bound_s": one.unfused_s, "covered": analysis.covered_count,
                "prediction": None if one.prediction is None else RECORDS.plain(one.prediction),
            }
        )
        for one in analysis.targets
    )  # fmt: skip


def document_of(analysis: Analysis) -> Document:
    """Return the predictions of all targets as a document."""
    blocks: list[Block] = []
    for one in analysis.targets:
        blocks.append(Heading(f"{analysis.name} ({words.subject(analysis)}) on {one.title} ({one.target})"))
        blocks += [f"  {line}" for line in lines_of(analysis, one)]
        if one.prediction is not None:
            causes = ((cause, text) for cause, text in CAUSES.items() if cause in one.prediction.gap_s)
            blocks += [f"    {cause}: {text}" for cause, text in causes]
            blocks += [f"  left out, {count} calls: {why}" for why, count in one.prediction.unpredicted.items()]
    return Document(blocks=blocks, kicker="Expected time")
