"""Report of a study: what the first line says for a winner, no winner, and an unconfirmed best."""

import json
from dataclasses import replace

import pytest

from nearpeak.core.tuning.study import FAILED, PRUNED, STOPPED, TIMED, WRONG, Contest, Study, Trial
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.tuning.study_report import document_of, to_json

DEFAULT, FAST = {"block": 16}, {"block": 64}
TRIALS = (
    Trial(position=1, settings=DEFAULT, outcome=TIMED, time_s=2e-3, samples_s=(2e-3,) * 8),
    Trial(position=2, settings={"block": 8}, outcome=STOPPED, time_s=5e-3, samples_s=(5e-3,), note="2.50 × the best"),
    Trial(position=3, settings={"block": 32}, outcome=WRONG, note="NUMERIC_FAIL in V5"),
    Trial(position=4, settings=FAST, outcome=TIMED, time_s=1e-3, samples_s=(1e-3,) * 32),
    Trial(position=5, settings={"block": 4}, outcome=PRUNED, bound_s=3e-3),
    Trial(position=6, settings={"block": 1}, outcome=FAILED, note="<b>crashed</b>"),
)
WON = Contest(
    champion=DEFAULT, challenger=FAST, verdict="improvement", time_ratio=0.55, low_ratio=0.5, high_ratio=0.6,
    search_ratio=0.5,
)  # fmt: skip
STUDY = Study(
    space="blocks", subject="gemm m=64", runner="callable:k.py:f", search="model", seed=0, combination_count=9,
    legal_count=7, trials=TRIALS, stop_reason="the budget of 6 evaluations is spent", default=DEFAULT,
    achievable_s=8e-4, achievable_low_s=6e-4, bound_s=4e-4, contests=(WON,), winner=FAST,
)  # fmt: skip


def lead_of(study):
    return document_of(study).lead


def test_the_first_line_names_the_winner_with_its_proof_and_distance():
    lead = lead_of(STUDY)
    assert lead.startswith("block=64: 1 ms, 1.82 × as fast as the default (1.67 to 2, interleaved pairs)")
    assert "1.2 × the achievable time" in lead
    assert lead.endswith("the budget of 6 evaluations is spent.")


def test_without_a_proof_there_is_no_winner_and_without_pairs_only_an_unconfirmed_best():
    same = replace(WON, verdict="invariant", time_ratio=1.0, low_ratio=0.99, high_ratio=1.01)
    assert lead_of(replace(STUDY, winner=None, contests=(same,))).startswith(
        "No winner: of 1 finalist none is proved right and faster than the default block=16"
    )
    assert lead_of(replace(STUDY, winner=None, contests=())).startswith("Best of the search, not confirmed in pairs")


def test_counts_faults_and_the_flattery_of_the_search_are_told():
    printed = to_terminal(document_of(STUDY), colour=False, width=80)
    text = " ".join(printed.split())
    assert "6 configurations: 2 timed, 1 stopped early as slower, 1 excluded by their bound, 1 wrong" in text
    assert "The pairs say 1.100 × what the search measured" in text
    assert "NUMERIC_FAIL in V5" in text
    assert len(printed.splitlines()) <= 40


def test_the_page_draws_every_trial_and_escapes_what_functions_say():
    page = to_html(document_of(STUDY))
    assert page.count("<circle") == len(TRIALS)
    assert "achievable 800 µs" in page
    assert "<b>crashed</b>" not in page


def test_the_record_holds_every_trial_and_the_best():
    record = json.loads(to_json(STUDY))
    assert record["best"] == 4
    assert [trial["outcome"] for trial in record["trials"]] == [trial.outcome for trial in TRIALS]
    assert record["winner"] == FAST


@pytest.mark.parametrize("study", [replace(STUDY, trials=(), contests=(), winner=None)])
def test_a_study_without_trials_is_said_to_have_no_time(study):
    assert lead_of(study).startswith("No configuration has a time")


def test_every_configuration_of_several_objectives_has_their_values():
    values = {"error_ratio": 0.125, "size_bytes": 8.0}
    trials = (Trial(position=2, settings={"width": 2}, outcome=TIMED, values=values),)
    found = replace(STUDY, trials=trials, contests=(), winner=None, objectives=("error_ratio", "size_bytes"))
    rows = [line.split() for line in to_terminal(document_of(found), is_unfolded=True).splitlines()]
    assert ["2", "width=2", "timed", "12.5", "%", "8", "B"] in rows
    assert lead_of(replace(found, trials=())).startswith("No configuration has a result")
