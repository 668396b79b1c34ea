"""Reports of a gate: each parses as its format, says every line, and is safe whatever names hold."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nearpeak.core.history.gate import GateLine, GatePolicy, GateResult, GateRule
from nearpeak.reports.gate import GATE_FORMATS

NASTY = "gemm|`<b>`\x00\x1b[31m -->\n@all \ud7ff"
LINES = (
    ("slower", "a", "fail", 10), ("slower", "b", "inconclusive", 11), ("slower", "c", "inconclusive", 0),
    ("slower", NASTY, "fail", 12), ("roof", "", "inconclusive", 11), ("roof", "d", "pass", 0),
)  # fmt: skip
RULES = tuple(GateRule(name=name, baseline="previous") for name in ("slower", "roof"))
POLICY = GatePolicy(name="kernels <1>", source="./ci/gate.toml", rules=RULES)
RESULT = GateResult(
    policy=POLICY, revision="abc123", verdict="fail", exit_code=12,
    lines=tuple(
        GateLine(rule=rule, series=series, verdict=verdict, exit_code=code, text=f"{series} is so")
        for rule, series, verdict, code in LINES
    ),
)  # fmt: skip


def report(name, result=RESULT):
    return GATE_FORMATS[name](result)


def test_junit_has_a_suite_per_rule_and_counts_that_agree_with_its_cases():
    whole = ElementTree.fromstring(report("junit").encode())
    suites = whole.findall("testsuite")
    assert [one.get("name") for one in suites] == ["slower", "roof"]
    for one in (*suites, whole):
        for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(one.get(name)) == len(list(one.iter(kind)))
        assert int(one.get("tests")) == len(list(one.iter("testcase")))
    assert (whole.get("failures"), whole.get("errors"), whole.get("skipped")) == ("2", "2", "1")


def test_sarif_obeys_the_rules_of_its_version():
    whole = json.loads(report("sarif"))
    assert whole["version"] == "2.1.0"
    (run,) = whole["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    for one in run["results"]:
        assert rules[one["ruleIndex"]] == one["ruleId"]
        assert one["level"] == "none" or one["kind"] == "fail"
        assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ci/gate.toml"
    assert [one["level"] for one in run["results"]] == ["error", "warning", "none", "error", "warning", "none"]
    prints = [one["partialFingerprints"]["nearpeakSeries/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_markdown_starts_with_a_marker_that_another_run_repeats_exactly():
    text, other = report("markdown"), report("markdown", replace(RESULT, revision="def", verdict="pass", lines=()))
    assert text.splitlines()[0] == other.splitlines()[0] == "<!-- nearpeak-gate:kernels-1 -->"
    assert text == report("markdown")


def test_markdown_stays_within_what_a_comment_holds():
    many = tuple(replace(RESULT.lines[0], series=f"series {number} " + "x" * 500) for number in range(5000))
    text = report("markdown", replace(RESULT, lines=many))
    assert len(text) < 65_536
    assert "4940 more" in text


def test_names_out_of_a_store_cannot_break_a_table_or_call_people():
    rows = [row for row in report("markdown").splitlines() if row.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
    outside = re.sub(r"(?<!\\)`[^`]*`", "", report("markdown"))  # a code span means nothing to a host
    assert "@all" not in outside
    assert "<b>" not in outside


def test_the_terminal_shows_failures_and_keeps_to_80_columns():
    text = report("terminal")
    assert max(map(len, text.splitlines())) <= 80
    assert "✗  a" in text
    assert "1 of 6 pass; exit code 12" in text
    assert "\x1b" not in text


def test_json_holds_every_line_and_the_policy():
    whole = json.loads(report("json"))
    assert (whole["kind"], whole["schema_version"], whole["exit_code"]) == ("nearpeak gate", 1, 12)
    assert len(whole["lines"]) == len(LINES)
    assert whole["policy"]["rules"][0]["baseline"] == "previous"


@pytest.mark.parametrize("name", GATE_FORMATS)
def test_a_gate_without_lines_is_reported_in_every_format(name):
    assert report(name, replace(RESULT, lines=(), verdict="inconclusive", exit_code=11))
