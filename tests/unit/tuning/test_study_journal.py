"""Journals of studies: a resumed search equals an uninterrupted one, each trial runs once, damage is one line."""

import contextlib
import json
from dataclasses import replace

import pytest
from tests.unit.tuning.planted import SPACE, time_ms

from nearpeak.core.tuning.study import FAILED, TIMED, Contest, Study, Trial
from nearpeak.errors import SpecError
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.search_choice import SEARCHES
from nearpeak.tuning.study_journal import stored_study, study_journal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials

REQUEST = {"space": "planted", "seed": 3}
LIMITS = SearchLimits(trial_count=40)


class StoppedError(Exception):
    """The program ends."""


def searched(path, name="model", stop_after=None, bound_s=lambda _: 0.0, limits=LIMITS):
    """Return the trials of a search, and what ran in this program; it may end in the middle."""
    legal, ran = legal_set(SPACE), []

    def evaluate(configuration, _):
        if stop_after is not None and len(ran) == stop_after:
            raise StoppedError
        ran.append(configuration)
        time = time_ms(*configuration)
        named = SPACE.named(configuration)
        if time is None:
            return Trial(position=0, settings=named, outcome=FAILED, note="planted")
        return Trial(position=0, settings=named, outcome=TIMED, time_s=time, samples_s=(time,), spent_s=1.0)

    with study_journal(path, REQUEST) as journal:
        with contextlib.suppress(StoppedError):
            search_trials(legal, SEARCHES[name](legal, 3, 1), evaluate, limits, journal, bound_s=bound_s)
        return tuple(journal.trials), ran


@pytest.mark.parametrize("name", ["model", "random"])
def test_a_search_that_was_stopped_twice_equals_one_that_was_not(tmp_path, name):
    whole, ran = searched(None, name)
    path = tmp_path / "study.jsonl"
    first = searched(path, name, stop_after=13)[1]
    second = searched(path, name, stop_after=11)[1]
    trials, third = searched(path, name)
    assert trials == whole
    assert [list(trial.settings) for trial in trials] == [list(trial.settings) for trial in whole]
    assert [*first, *second, *third] == ran
    assert len(set(ran)) == len(ran) == 40


def test_a_search_with_exclusions_is_resumed_to_the_same_end(tmp_path):
    def bound_s(configuration):
        time = time_ms(*configuration)
        return 0.9 * time if time else 0.0

    whole, _ = searched(None, bound_s=bound_s)
    searched(tmp_path / "s.jsonl", stop_after=7, bound_s=bound_s)
    assert searched(tmp_path / "s.jsonl", bound_s=bound_s)[0] == whole
    assert any(trial.outcome == "cannot win" for trial in whole)


def test_a_line_that_was_cut_off_runs_again_and_whole_lines_do_not(tmp_path):
    path = tmp_path / "study.jsonl"
    searched(path, stop_after=9)
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(data[: last + 12])
    trials, ran = searched(path)
    assert trials == searched(None)[0]
    assert len(ran) == 40 - 9 + (b'"trial"' in data[last:])


def test_a_configuration_that_ends_the_whole_program_twice_counts_as_failed(tmp_path):
    path = tmp_path / "study.jsonl"
    for _ in range(2):
        searched(path, stop_after=0)
    trials, ran = searched(path)
    assert trials[0].outcome == FAILED
    assert trials[0].note == "the program ended 2 times while it ran"
    assert len(ran) == 39


def test_a_larger_budget_goes_on_and_a_finished_study_runs_nothing(tmp_path):
    path = tmp_path / "study.jsonl"
    searched(path)
    assert searched(path)[1] == []
    assert len(searched(path, limits=SearchLimits(trial_count=45))[1]) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "is no journal of a study"),
        ('{"key":"1"}\n', "is no journal of a study"),
        ('{"key":"1","nearpeak_study":1,"request":{"seed":4,"space":"planted"}}\n', "another study: seed differs"),
        ('{"key":"1","nearpeak_study":1,"request":5}\n', "another study: "),
        ("HEAD[1, 2\n", "line 2: is no line of a journal"),
        ('HEAD{"other": 1}\n', "line 2: is neither begin, trial, contest nor study"),
        ('HEAD{"trial": {"position": "x"}}\n', "line 2"),
        ('HEAD{"begin": NaN}\n', "line 2: cannot be read as line of a journal"),
        ('HEAD{"trial": {"position": 1, "settings": {}, "outcome": "won"}}\n', "line 2: has outcome 'won'"),
        (
            'HEAD{"trial": {"position": 1, "settings": {}, "outcome": "timed", "time_s": -1}}\n',
            "line 2: holds a number",
        ),
        ('HEAD{"trial": {"position": 1, "settings": {}, "outcome": "timed", "spent_s": "inf"}}\n', "line 2: holds a"),
        (
            f'HEAD{{"trial": {{"position": 1, "settings": {{}}, "outcome": "timed", "time_s": {"9" * 400}}}}}\n',
            "line 2",
        ),
    ],
)
def test_what_is_no_journal_of_this_study_is_refused_and_kept(tmp_path, text, message):
    path = tmp_path / "study.jsonl"
    with study_journal(path, REQUEST):
        head = path.read_text()
    path.write_text(text.replace("HEAD", head))
    before = path.read_bytes()
    with pytest.raises(SpecError, match=message) as raised, study_journal(path, REQUEST):
        pass
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == before


def test_contests_are_read_again_as_they_were_written(tmp_path):
    contest = Contest(champion={"a": 1}, challenger={"a": 2}, verdict="improvement", time_ratio=0.5, low_ratio=0.4)
    with study_journal(tmp_path / "s.jsonl", REQUEST) as journal:
        journal.add_contest(contest)
    with study_journal(tmp_path / "s.jsonl", REQUEST) as journal:
        assert journal.contests == [contest]
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert "contest" in rows[1]


def test_a_journal_alone_tells_its_study_under_way_and_at_its_end(tmp_path):
    path = tmp_path / "study.jsonl"
    about = Study(
        space="planted", subject="x", runner="r", search="model", seed=3, combination_count=160, legal_count=160,
        trials=(), stop_reason="", bound_s=1e-6,
    )  # fmt: skip
    with study_journal(path, REQUEST) as journal:
        with pytest.raises(SpecError, match="holds no study yet"):
            stored_study(path)
        journal.state(about)
        journal.add(Trial(position=1, settings={"block": 16}, outcome=TIMED, time_s=1.0))
        assert stored_study(path) == replace(about, trials=tuple(journal.trials))
        ended = replace(about, trials=tuple(journal.trials), stop_reason="the budget is spent")
        journal.state(ended)
        size = path.stat().st_size
        journal.state(ended)
        assert path.stat().st_size == size
    assert stored_study(path) == ended
    with path.open("a") as file:
        file.write('{"begin":{"block":32}}\n{"trial":{"posi')
    assert stored_study(path).stop_reason == ""
    path.write_text(path.read_text().replace("nearpeak_study", "other"))
    with pytest.raises(SpecError, match=r"name\.jsonl: is no journal of a study"):
        stored_study(path, "name.jsonl")
