"""A saved report comes back equal; anything else is refused with a line that says what is wrong."""

import dataclasses
import json
from pathlib import Path

import pytest
from tests.unit.reports import factory

from nearpeak.core.answers import analysis as values
from nearpeak.core.answers.bound import Interval, Policy
from nearpeak.core.answers.expected_energy import ExpectedEnergy
from nearpeak.core.answers.proof import Proof, ProvedTerm, Quantity
from nearpeak.core.runs.below_bound_finding import BelowBound
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.reports import comparison_report as comparison
from nearpeak.reports.analysis.json import from_json, to_json

ANALYSIS = factory.analysis(measured=True)
TEXT = to_json(ANALYSIS)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "report_json.md"
RECORDS = (
    values.Analysis,
    values.CallPrediction,
    values.StepPrediction,
    ExpectedEnergy,
    values.CaseRow,
    values.TargetAnalysis,
    values.CaseTime,
    values.Share,
    values.Opportunity,
    values.Fit,
    values.MemoryUse,
    Policy,
    Case,
    Proof,
    ProvedTerm,
    Quantity,
    Interval,
    BelowBound,
)


@pytest.mark.parametrize(
    "analysis",
    [
        ANALYSIS,
        factory.analysis(rows=()),
        factory.analysis(step="sweep", memory=None, parameter_count=None, devices=()),
    ],
    ids=["measured", "empty", "sweep"],
)
def test_report_comes_back_equal_from_its_json(analysis):
    assert from_json(to_json(analysis)) == analysis


def test_kinds_of_attributes_survive_the_round_trip():
    case = Case(op="a", phase="forward", axes=(("m", 1),), dtypes=(), attributes=(("causal", True), ("layout", "1")))
    row = dataclasses.replace(ANALYSIS.rows[0], case=case)
    again = from_json(to_json(factory.analysis(rows=(row,)))).rows[0].case
    assert again == case
    assert again.digest == case.digest


def changed(**fields):
    return json.dumps({**json.loads(TEXT), **fields})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cut off: empty"),
        (TEXT[: len(TEXT) // 2], "cut off"),
        ("[]", "states no kind"),
        ('{"kind": "other"}', "its kind is 'other'"),
        ('{"kind": NaN}', "NaN is not a number"),
        ("[" * 100_000, "not a saved analysis"),
        (changed(schema_version=7), "has schema version 7; this nearpeak reads version 5"),
        (changed(name=3), "mine.json.name: is a whole number; must be a text"),
        (changed(rows={}), "mine.json.rows: is an object; must be a list"),
        (changed(extra=1), "'extra' is not a field"),
        (changed(memory={}), "mine.json.memory: has no 'weight_bytes'"),
        (changed(batch_count=True), "mine.json.batch_count: is true or false; must be a whole number"),
        (changed(rows=[]), "21 times for 0 rows"),
    ],
)
def test_what_is_no_saved_report_is_refused_in_one_line(text, message):
    with pytest.raises(SpecError) as error:
        from_json(text, "mine.json")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_field_deep_inside_is_named_with_its_place():
    raw = json.loads(TEXT)
    del raw["targets"][2]["times"][0]["limiter"]
    with pytest.raises(SpecError, match=r"report\.targets\[2\]\.times\[0\]: has no 'limiter'"):
        from_json(json.dumps(raw))


def test_every_field_of_a_report_is_in_the_reference():
    page = PAGE.read_text(encoding="utf-8")
    sections = {part.split("\n", 1)[0].strip(): part for part in page.split("\n## ")}
    for record in RECORDS:
        for field in dataclasses.fields(record):
            assert f"| `{field.name}` |" in sections[record.__name__], f"{record.__name__}.{field.name}"
    assert f"describes schema version {values.SCHEMA_VERSION}." in page
    assert f"`{comparison.KIND}`, schema version {comparison.SCHEMA_VERSION}." in page
