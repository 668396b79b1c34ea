"""Policies of gates: what they state is kept, what they get wrong is named."""

import pytest

from nearpeak.errors import SpecError
from nearpeak.gate.policy_file import policy_of, read_policy

GOOD = """
name = "kernels"
tolerance = "3%"
inconclusive = "pass"

[[rule]]
name = "nothing slower"
baseline = "previous"
select = { op = "gemm", target = "h200*" }
except = { runner = "null" }

[[rule]]
name = "near the roof"
baseline = "bound"
at_least = "80%"

[[rule]]
name = "as predicted"
baseline = "prediction"
tolerance = "10%"
inconclusive = "fail"

[[rule]]
name = "since the release"
baseline = "tag"
tag = "v1.2"

[[rule]]
name = "rolling"
baseline = "rolling"
window = 10
"""


def test_a_policy_keeps_what_its_file_states(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_text(GOOD)
    policy = read_policy(file)
    previous, roof, predicted, tag, rolling = policy.rules
    assert (policy.name, policy.source) == ("kernels", str(file))
    assert (previous.tolerance_ratio, previous.inconclusive, dict(previous.leave_out)) == (
        0.03,
        "pass",
        {"runner": "null"},
    )
    assert (roof.least_ratio, predicted.tolerance_ratio, predicted.inconclusive) == (0.8, 0.1, "fail")
    assert (tag.tag, rolling.window_count) == ("v1.2", 10)


def rule(**changes):
    lines = {"name": '"a"', "baseline": '"previous"'} | changes
    return "[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items() if value) + "\n"


WRONG = {
    "not TOML": ("[[rule", "is not TOML"),
    "no rules": ("tolerance = '2%'", "has no rules"),
    "rule is a text": ("rule = 'all'", "has no rules"),
    "rules are numbers": ("rule = [1]", "is no table"),
    "unknown key at the top": ("rules = []", "'rules' is not known"),
    "unknown key": (rule(limit="1"), "'limit' is not known"),
    "no name": (rule(name=""), "name"),
    "unknown baseline": (rule(baseline='"best"'), "'best' is not known"),
    "tolerance without unit": (rule(tolerance="2"), "tolerance 2"),
    "tolerance above 100 %": (rule(tolerance='"120%"'), "120%"),
    "share of a bound for another baseline": (rule(at_least='"80%"'), "at_least contradicts baseline 'previous'"),
    "tag for another baseline": (rule(tag='"v1"'), "tag contradicts"),
    "bound without share": (rule(baseline='"bound"'), "needs at_least"),
    "bound with tolerance": (rule(baseline='"bound"', at_least='"80%"', tolerance='"2%"'), "contradicts at_least"),
    "tag without tag": (rule(baseline='"tag"'), "needs tag"),
    "window of none": (rule(baseline='"rolling"', window="0"), "window 0"),
    "window that is true": (rule(baseline='"rolling"', window="true"), "window True"),
    "unknown field": (rule(select='{ gpu = "h200" }'), "'gpu' is not known"),
    "pattern that is a number": (rule(select="{ op = 3 }"), "op: 3"),
    "selected and left out": (rule(select='{ op = "a*" }', **{"except": '{ op = "a*" }'}), "judge nothing"),
    "everything left out": (rule(**{"except": '{ op = "*" }'}), "judge nothing"),
    "unknown choice": (rule(inconclusive='"ignore"'), "'ignore' is not known"),
    "two of one name": (rule() + rule(), "two rules are called 'a'"),
    "two limits": (rule() + rule(name='"b"', tolerance='"5%"'), "'a' and 'b' contradict each other"),
    "two ways with inconclusive": (rule() + rule(name='"b"', inconclusive='"pass"'), "contradict each other"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=list(WRONG))
def test_a_policy_that_is_wrong_or_contradicts_itself_is_refused_in_one_line(text, words):
    with pytest.raises(SpecError) as caught:
        policy_of(text, "gate.toml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("gate.toml")


def test_a_policy_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_bytes(b"\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_policy(file)
