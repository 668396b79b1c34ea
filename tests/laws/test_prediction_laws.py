"""Laws of predictions: every case that has a rule is predicted, its ends in order, its parts summing to the whole."""

import json
import math

import pytest
from tests.golden.directed import CASES

import nearpeak
from nearpeak.core.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import work_of
from nearpeak.predict.prediction import predict_case
from nearpeak.targets import target_of

DEVICES = ("h100_sxm", "mi300x")


def directed_cases(op, changed=None):
    """The directed cases of an operator, forward, with one axis changed where `changed` is an extent."""
    for line in (CASES / f"{op}.jsonl").read_text(encoding="utf-8").splitlines():
        given = {"dtype": "fp32"} | {name: value for name, value in json.loads(line).items() if name[0] != "_"}
        try:
            base = nearpeak.case(op, **given)
        except NearpeakError:
            continue
        yield from [base] if changed is None else _changed(base, given, changed)


def _changed(base: Case, given, extent):
    for name, _ in base.axes:
        try:
            case = nearpeak.case(base.op, **given | {name: extent})
            work_of(case)
        except NearpeakError:
            continue
        yield case


@pytest.mark.parametrize("op", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_every_case_with_a_rule_is_predicted_also_where_an_extent_is_nil_or_one(op):
    cases = dict.fromkeys(case for extent in (None, 0, 1) for case in directed_cases(op, extent))
    for number, case in enumerate(cases):
        found = predict_case(case, target_of(DEVICES[number % len(DEVICES)]))
        assert all(map(math.isfinite, (found.low_s, found.time_s, found.high_s))), case
        assert found.bound_s <= found.low_s <= found.time_s <= found.high_s, case
        assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9), case
