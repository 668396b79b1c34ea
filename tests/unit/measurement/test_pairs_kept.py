"""The pairs that the benchmark of comparisons keeps from sitting to sitting."""

import dataclasses

import pytest
from benchmarks import paired_compare
from benchmarks.paired_compare import PAIRS, Pair, code_of, figures, keep, kept, machine, mechanism


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    path = tmp_path / "pairs.jsonl"
    monkeypatch.setattr(paired_compare, "KEPT", path)
    return path


def pair(candidate="base", verdict="invariant", **fields):
    facts = {"took_s": 8.5, "ratio": 1.001, "round_count": 5, "day": "2026-11-22"}
    digests = {"mechanism": mechanism(), "machine": machine()}
    return Pair(candidate=candidate, verdict=verdict, **(facts | digests | fields))


def test_pairs_of_another_machine_or_mechanism_do_not_count():
    for one in (pair(), pair(machine="else"), pair(mechanism="else"), pair("planted", "regression")):
        keep(one)
    assert kept() == [pair(), pair("planted", "regression")]


def test_a_line_that_was_cut_off_costs_only_itself(log):
    keep(pair())
    log.write_bytes(log.read_bytes() + log.read_bytes()[:40])
    keep(pair("planted"))
    assert kept() == [pair(), pair("planted")]


def test_words_and_layout_of_the_mechanism_do_not_count_and_its_numbers_do():
    before = 'def f(x: int) -> int:\n    """Say."""\n    return x + 1  # why\n'
    assert code_of(before) == code_of("def f(x: int) -> int:\n    return x+1\n")
    assert code_of(before) != code_of(before.replace("+ 1", "+ 2"))


def test_no_bar_is_reached_with_fewer_pairs_than_it_asks_for():
    few = [pair(), pair("planted", "regression")]
    assert not any(one.passed for one in figures(few))
    assert all(one.passed for one in figures(few * PAIRS))
    false = [dataclasses.replace(few[0], verdict="improvement")] * 4
    assert [one.passed for one in figures(few * PAIRS + false)] == [False, True, True, True]
