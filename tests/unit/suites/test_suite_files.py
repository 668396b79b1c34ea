"""Suites from workloads, merged and stored: no count lost or doubled, the same bytes, damage refused by line."""

import json
from dataclasses import replace

import pytest

from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.files.sweep import swept
from nearpeak.ops import case
from nearpeak.suites.directed_cases import directed_suite
from nearpeak.suites.suite_difference import difference
from nearpeak.suites.suite_file import load_text, save_text
from nearpeak.suites.suite_merge import merged, suite_of

SMALL, LARGE = (case("gemm", m=m, n=8, k=8, dtype="bf16") for m in (1, 4096))


def call(of, module, count=1):
    return Call(case=of, operator="aten.mm.default", phase="forward", module=module, source="m.py:3", call_count=count)


def workload(name="net", calls=None, step="forward"):
    layers = tuple(call(SMALL, f"layers.{n}.mlp") for n in range(12))
    lost = Call(case=None, operator="aten.odd.default", phase="forward", call_count=2)
    return Workload(name=name, step=step, calls=calls or (*layers, call(LARGE, "head", 3), lost), origin={"kind": "x"})


def test_layers_become_one_case_with_one_place_and_all_their_calls():
    suite = suite_of(workload())
    found = {one.case: one for one in suite.cases}
    assert [(why.module, why.line, why.call_count) for why in found[SMALL].why] == [("layers.*.mlp", "m.py:3", 12)]
    assert found[LARGE].call_count == 3
    assert dict(suite.sources[0].uncovered) == {"aten.odd.default": 2}
    assert suite.sources[0].call_count == 15


def test_a_workload_without_any_case_is_refused():
    lost = Call(case=None, operator="aten.odd.default", phase="forward")
    with pytest.raises(SpecError, match="no call of it has a case"):
        suite_of(workload(calls=(lost,)))


def test_the_same_source_twice_counts_once_and_another_of_its_name_gets_a_name_of_its_own():
    first = suite_of(workload())
    again = merged([first, suite_of(workload()), first], "all")
    assert sum(one.call_count for one in again.cases) == 15
    other = merged([first, suite_of(workload(calls=(call(SMALL, "a", 7),)))], "all")
    assert [one.name for one in other.sources] == ["net forward", "net forward (2)"]
    assert {one.case: one.call_count for one in other.cases} == {SMALL: 19, LARGE: 3}


def test_merging_in_either_order_and_in_steps_keeps_every_count():
    parts = [suite_of(workload(name, (call(SMALL, "a", n), call(LARGE, "b", n)))) for n, name in enumerate("xyz", 1)]
    at_once, in_steps = merged(parts, "s"), merged([merged(parts[:2], "p"), parts[2]], "s")
    assert save_text(at_once) == save_text(in_steps)
    backwards = merged(parts[::-1], "s")
    assert [(one.case, one.call_count) for one in backwards.cases] == [(one.case, 6) for one in at_once.cases]


def test_names_may_hold_what_ends_lines_elsewhere():
    suite = suite_of(workload(calls=(call(SMALL, "a\u2028b\x85c"),)))
    assert load_text(save_text(suite), "s.jsonl") == suite


def test_a_suite_survives_its_file_with_the_same_bytes():
    suite = merged([suite_of(workload()), suite_of(swept("s", "op=softmax dtype=bf16 rows=1,2 columns=3"))], "both")
    suite = replace(suite, cases=(replace(suite.cases[0], chosen=False), *suite.cases[1:]), plan={"goal": "x"})
    text = save_text(suite)
    assert load_text(text, "f") == suite
    assert save_text(load_text(text, "f")) == text


def lines_of(suite):
    return [json.loads(line) for line in save_text(suite).splitlines()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[0].update(version=2), r"has schema version 2; this nearpeak reads version 1"),
        (lambda lines: lines[0].update(schema="other"), r"not a suite"),
        (lambda lines: lines.pop(), r"holds 1 cases, its header says 2"),
        (lambda lines: lines[1]["case"].update(n=9), r"s.jsonl:2: digest \w{12} is not that of the case"),
        (lambda lines: lines[1]["case"].update(q=9), r"s.jsonl:2.case: gemm: no axis 'q'"),
        (lambda lines: lines[2].pop("digest"), r"s.jsonl:3: has no digest; it needs digest, case and why"),
        (lambda lines: lines[2].update(why=[]), r"s.jsonl:3: every case needs reasons"),
        (lambda lines: lines[2]["why"][0].update(source="nobody"), r"s.jsonl:3: every case needs reasons"),
        (lambda lines: lines[2]["why"][0].update(calls=-1), r"s.jsonl:3.why\[0\].calls: is -1; must be a whole number"),
        (lambda lines: lines[0].pop("sources"), r"s.jsonl:1: has no 'sources'"),
    ],
)
def test_damage_and_newer_schemas_are_refused_by_name(change, message):
    lines = lines_of(suite_of(workload()))
    change(lines)
    with pytest.raises(SpecError, match=message):
        load_text("".join(json.dumps(line) + "\n" for line in lines), "s.jsonl")


@pytest.mark.parametrize("text", ["", "[]\n", "{\n", "nonsense\n", '{"schema":"nearpeak.suite","version":true}\n'])
def test_files_that_are_no_suites_are_refused(text):
    with pytest.raises(SpecError):
        load_text(text, "s.jsonl")


def test_cases_of_sweeps_are_directed_and_say_by_which_rule():
    suite = suite_of(swept("s", "op=softmax dtype=bf16 rows=1,2 columns=3 rule=short"))
    assert {(why.kind, why.rule, why.call_count) for one in suite.cases for why in one.why} == {
        ("directed", "short", 0)
    }


def test_a_difference_names_what_is_new_gone_and_called_more_often():
    old, new = suite_of(workload(calls=(call(SMALL, "a", 2),))), suite_of(workload(calls=(call(LARGE, "a", 2),)))
    found = difference(old, new)
    assert [one.case for one in found.added] == [LARGE]
    assert [one.case for one in found.removed] == [SMALL]
    more = difference(old, suite_of(workload(calls=(call(SMALL, "a", 5),))))
    assert [(before.call_count, after.call_count) for before, after in more.changed] == [(2, 5)]
    assert difference(old, old).changed == difference(old, old).added == ()


def test_the_table_of_a_difference_says_what_changed_of_a_case_that_both_hold(capsys):
    from nearpeak.cli.shared.suite_tables import print_difference

    suite = directed_suite("fill")
    first, *others = suite.cases
    print_difference(difference(suite, replace(suite, cases=(replace(first, chosen=not first.chosen), *others))))
    assert "no longer run" in capsys.readouterr().out
