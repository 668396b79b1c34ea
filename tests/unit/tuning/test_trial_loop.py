"""The loop of a search: what a true bound excludes, what is wrong, why it ends, and who can win."""

import random

import pytest
from tests.sampling import sampled
from tests.unit.tuning.planted import SPACE, time_ms

from nearpeak.core.runs.paired_rounds import Judgement, PairedComparison
from nearpeak.core.tuning.study import FAILED, PRUNED, TIMED, WRONG, Trial
from nearpeak.tuning.finalists import winner_of
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.search_choice import SEARCHES, search_name
from nearpeak.tuning.staged_stop import stop_reason
from nearpeak.tuning.study_journal import StudyJournal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials

LEGAL = legal_set(SPACE)
BEST = min((time_ms(*LEGAL.configuration(i)) or 99, LEGAL.configuration(i)) for i in range(len(LEGAL)))[1]


def trial_of(configuration, outcome=TIMED, factor=1.0):
    time = (time_ms(*configuration) or 99) * factor
    named = SPACE.named(configuration)
    if outcome == WRONG:
        return Trial(position=0, settings=named, outcome=WRONG, note="planted")
    return Trial(position=0, settings=named, outcome=TIMED, time_s=time, samples_s=(time,), spent_s=time)


def judged(ratio):
    verdict = "improvement" if ratio < 0.98 else "regression" if ratio > 1.02 else "invariant"
    judgement = Judgement(
        verdict=verdict, time_ratio=ratio, low_ratio=ratio * 0.99, high_ratio=ratio * 1.01, tolerance_ratio=0.02,
        detectable_ratio=0.02, round_count=5,
    )  # fmt: skip
    return PairedComparison(
        case=None, baseline="a", candidate="b", clock="cpu", rounds=(), judgement=judgement, outcome="compared"
    )


def duel(champion, challenger):
    left, right = (time_ms(**one) or 99 for one in (champion, challenger))
    return judged(right / left)


@pytest.mark.parametrize("seed", sampled(range(8), 3))
def test_any_true_bound_leaves_the_optimum_in_and_saves_runs(seed):
    draw = random.Random(seed)
    shares = {LEGAL.configuration(i): draw.random() for i in range(len(LEGAL))}
    journal = StudyJournal(None, None, {})
    reason = search_trials(
        LEGAL, SEARCHES["model"](LEGAL, seed, 1), lambda one, _: trial_of(one), SearchLimits(trial_count=500), journal,
        bound_s=lambda one: shares[one] * (time_ms(*one) or 0.0),
    )  # fmt: skip
    assert reason == "all 160 legal configurations are tried or excluded"
    best = min((trial for trial in journal.trials if trial.outcome == TIMED), key=lambda trial: trial.score_s)
    assert best.score_s == time_ms(*BEST)
    assert sum(trial.outcome == PRUNED for trial in journal.trials) > 10


def test_a_fast_wrong_configuration_is_never_named_winner_in_a_hundred_searches():
    legal = [LEGAL.configuration(index) for index in range(len(LEGAL))]
    right_default = next(one for one in legal if time_ms(*one) and time_ms(*one) > 2.5)
    for seed in range(100):
        wrong = set(random.Random(seed).sample(legal, 20)) | {BEST}
        wrong.discard(right_default)

        def evaluate(one, _, wrong=wrong):
            return trial_of(one, WRONG if one in wrong else TIMED)

        journal = StudyJournal(None, None, {})
        search_trials(LEGAL, SEARCHES["random"](LEGAL, seed, 1), evaluate, SearchLimits(trial_count=60), journal)
        winner = winner_of(journal, SPACE.named(right_default), duel, lambda _: "", 3)
        assert winner is None or tuple(winner.values()) not in wrong


def test_what_was_right_in_the_search_and_is_wrong_on_fresh_inputs_does_not_win():
    journal = StudyJournal(None, None, {})
    search_trials(
        LEGAL, SEARCHES["random"](LEGAL, 0, 1), lambda one, _: trial_of(one), SearchLimits(trial_count=500), journal
    )
    fast = SPACE.named(BEST)
    winner = winner_of(journal, None, duel, lambda one: "wrong on fresh inputs" if one == fast else "", 3)
    assert winner is not None
    assert winner != fast
    assert journal.contests[0].verdict == WRONG
    assert journal.contests[1].champion == {}


def test_nobody_wins_where_the_default_is_as_fast():
    journal, named = StudyJournal(None, None, {}), SPACE.named(BEST)
    for configuration in (BEST, *(LEGAL.configuration(index) for index in range(5))):
        journal.add(trial_of(configuration))
    assert winner_of(journal, named, duel, lambda _: "", 3) is None
    assert [contest.verdict for contest in journal.contests] == ["regression"] * 3
    again = winner_of(journal, named, lambda *_: pytest.fail("a contest ran twice"), lambda _: "", 3)
    assert again is None


def test_a_search_ends_at_the_achievable_time_or_with_its_budget_and_says_which():
    def ended(**limits):
        journal = StudyJournal(None, None, {})
        search = SEARCHES["model"](LEGAL, 0, 1)
        reason = search_trials(LEGAL, search, lambda one, _: trial_of(one), SearchLimits(**limits), journal)
        return reason, len(journal.trials)

    assert ended(trial_count=12) == ("the budget of 12 evaluations is spent", 12)
    reason, count = ended(trial_count=150, target_s=1.3 * time_ms(*BEST), target_words="near enough")
    assert reason == "near enough"
    assert count < 100
    assert ended(trial_count=150, spent_s=30.0)[0] == "the budget of 30 s is spent"


def test_what_is_faster_than_its_bound_has_no_time_that_may_win():
    journal = StudyJournal(None, None, {})
    search = SEARCHES["model"](LEGAL, 0, 1)
    limits = SearchLimits(trial_count=30)
    search_trials(LEGAL, search, lambda one, _: trial_of(one, factor=0.5), limits, journal, bound_s=lambda one: 0.8)
    for trial in journal.trials:
        assert (trial.outcome == FAILED) == (trial.time_s < 0.8)
        assert trial.score_s == float("inf") or trial.score_s >= 0.8
    assert any("is below its bound of 0.8 s" in trial.note for trial in journal.trials)


def test_the_default_runs_first():
    from dataclasses import replace

    legal, journal = legal_set(replace(SPACE, default=BEST)), StudyJournal(None, None, {})
    search = SEARCHES["model"](legal, 1, 1)
    search_trials(legal, search, lambda one, _: trial_of(one), SearchLimits(trial_count=30), journal)
    assert journal.trials[0].settings == SPACE.named(BEST)
    assert len({tuple(trial.settings.values()) for trial in journal.trials}) == 30


def test_stages_stop_what_is_clear_and_time_what_is_close_in_full():
    assert stop_reason([1.21], 1.0) == "1.21 × the best after 1 call"
    assert stop_reason([0.5], 1.0) is None
    assert stop_reason([1.0] * 31, 1.0) is None
    assert stop_reason([1.0] * 32, 1.0) == ""
    assert stop_reason([1.06] * 8, 1.0) == "1.06 × the best after 8 calls"
    assert stop_reason([5.0] * 4, float("inf")) is None
    assert stop_reason([5.0] * 8, float("inf")) == ""


def test_searches_are_chosen_by_name_and_number_of_objectives():
    from nearpeak.errors import SpecError

    assert search_name("auto", 3) == "nsga2"
    for words in (("annealing",), ("model", 2)):
        with pytest.raises(SpecError, match="--search"):
            search_name(*words)
