"""Laws of predictions: every case that has a rule is predicted, its ends in order, its parts summing to the whole."""

import json
import math
from functools import partial

import pytest
from tests.golden.directed import CASES
from tests.sampling import in_turn

import nearpeak
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError, NotModelledError
from nearpeak.ops import work_of
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.case_prediction import predict_case, predict_table
from nearpeak.targets import target_of

DEVICES = ("h100_sxm", "mi300x", "jetson_agx_xavier:15W", "gtx_1080_ti", "b200_sxm")
PARTS = 4
"""Into which the cases of each operator are divided: `make test` runs one of each operator, `make bench` all."""


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


def placed(op, part, extents):
    """One part of the directed cases of an operator, with one axis at each of `extents`, each on a device."""
    cases = dict.fromkeys(case for extent in extents for case in directed_cases(op, extent))
    for number, case in list(enumerate(cases))[part::PARTS]:
        target = target_of(DEVICES[number % len(DEVICES)])
        if target.links or op not in ("collective", "transfer"):
            yield case, target


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("op", "part"), in_turn(sorted(path.stem for path in CASES.glob("*.jsonl")), range(PARTS)))
def test_every_case_with_a_rule_is_predicted_also_where_an_extent_is_nil_or_one(op, part):
    for case, target in placed(op, part, (None, 0, 1)):
        found = predict_case(case, target)
        assert all(map(math.isfinite, (found.low_s, found.time_s, found.high_s))), case
        assert found.bound_s <= found.low_s <= found.time_s <= found.high_s, case
        assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9), case
        assert all(abs(term.time_s) > 1e-12 * found.time_s for term in found.terms), case
        assert target.power_w is None or found.power_w <= target.power_w, case


@pytest.mark.parametrize(("op", "part"), in_turn(sorted(path.stem for path in CASES.glob("*.jsonl")), range(PARTS)))
def test_a_table_answers_as_its_cases_do_also_which_part_is_the_largest(op, part):
    for case, target in placed(op, part, (None, 1, 4096)):
        if op == "collective" and dict(case.axes)["ranks"] > 8:  # beyond a node, whose network nothing states
            for predicted in (partial(predict_case, case), partial(predict_table, table_of_cases([case]))):
                with pytest.raises(NotModelledError, match="a node has 8"):
                    predicted(target)
            continue
        one, row = predict_case(case, target), predict_table(table_of_cases([case]), target)
        same = (one.time_s, one.low_s, one.high_s, one.bound_s)
        assert (row.predicted_s[0], row.low_s[0], row.high_s[0], row.bound_s[0]) == same, case  # to the last bit
        assert row.limiter[0] == one.limiter, (case, target.name)
        assert row.distance_count[0] == one.distance_count, case
