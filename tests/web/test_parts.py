"""What the dashboard is made of: files of others unchanged, points that are kept, commands that run, tokens, triage."""

import hashlib
import json
import shlex
import time
from types import SimpleNamespace

import numpy as np
import pytest
from house_rules import ROOT
from typer.testing import CliRunner

from nearpeak.api.case_words import case_of
from nearpeak.cli import application
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.history.alert_triage import ACTIONS, act
from nearpeak.history.commit_comparison import compared
from nearpeak.history.commit_points import points_of
from nearpeak.history.demo_series import planted
from nearpeak.history.series_state import standings
from nearpeak.store import open_store
from nearpeak.web.history_chart import kept_points
from nearpeak.web.reproduction_commands import commands_of, measure_command, store_option
from nearpeak.web.series_charts import thinned
from nearpeak.web.site import OLDEST_S, Setting, Site

VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files of uPlot 1.6.32 as released."""


def test_files_of_others_are_those_that_were_released_and_are_named_with_their_licence():
    folder = ROOT / "src" / "nearpeak" / "web" / "static" / "vendor"
    found = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}
    assert found == VENDORED
    assert "uPlot 1.6.32" in (ROOT / "NOTICE").read_text(encoding="utf-8")


def test_spikes_and_changes_survive_when_points_are_left_out():
    values = np.sin(np.arange(50_000) / 900).tolist()
    values[31_234] = 40.0
    kept = kept_points(values, always=[17])
    assert len(kept) <= 2001
    assert {17, 31_234} <= set(kept)
    assert kept == sorted(kept)


def test_commands_state_the_case_that_they_are_of(made_up):
    with open_store(made_up) as store:
        found, site = store.series(), Site(store, Setting())
    for one in found:
        words = shlex.split(measure_command(one))
        assert words[:2] == ["nearpeak", "measure"]
        assert case_of(words[2 : words.index("--runner")], "measure").digest == one.case
        assert words[words.index("--runner") + 1] == one.testbed.name
        assert len(list(commands_of(site, one))) == 4


def test_the_bound_command_of_a_case_runs(made_up):
    with open_store(made_up) as store:
        command = dict(commands_of(Site(store, Setting()), store.series()[0]))["What nothing can beat, and why"]
    done = CliRunner().invoke(application(), shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("name", "is_static", "option"),
    [("a folder/team.db", False, " --store 'a folder/team.db'"), ("/srv/team.db", True, " --store team.db"),
     ("postgresql+psycopg://me@host/perf", False, " --store postgresql+psycopg://me@host/perf"),
     ("postgresql+psycopg://me:***@host/perf", False, ""), ("postgresql+psycopg://me@host/perf", True, "")],
)  # fmt: skip
def test_commands_name_the_store_but_no_secret_of_it(name, is_static, option):
    site = SimpleNamespace(store=SimpleNamespace(name=name), setting=Setting(is_static=is_static))
    assert store_option(site) == option


def test_standings_are_the_newest_values_beside_bound_and_prediction(made_up):
    with open_store(made_up) as store:
        series = store.series()
        for one, found in zip(series, standings(store, series), strict=True):
            latest = store.latest_against_previous([one.id])[0]
            assert (found.value, found.previous_value) == (latest.value, latest.previous_value)
            assert 0 < found.attained_ratio < 1
            assert found.bound_s <= found.predicted_s
            assert not found.is_implausible


def test_commits_around_a_planted_change_compare_as_it(made_up):
    change = planted(60)[0]
    with open_store(made_up) as store:
        shas = {run.revision.position: run.revision.sha for run in store.runs()}
        found = compared(store, store.series(), shas[change.commit - 1], shas[change.commit])
        verdicts = {one.series.workload: set() for one in found}
        for one in found:
            verdicts[one.series.workload].add(one.judgement.verdict)
    assert "regression" in verdicts["gemm"]
    assert verdicts["copy"] <= {"invariant", "inconclusive"}


def test_actions_pass_the_states_on_the_way_and_refuse_what_cannot_be(copied):
    with open_store(copied) as store:
        assert act(store, 1, "acknowledge", actor="ada") == "acknowledged"
        assert [one.to_status for one in store.findings.events(1)] == ["new", "active", "acknowledged"]
        assert act(store, 1, "acknowledge", actor="ada") == "acknowledged", "twice changes nothing"
        assert act(store, 1, "expected", actor="ada", note="new default") == "expected"
        for action in ("invalid", "acknowledge", "fixing"):
            with pytest.raises(SpecError, match="reopen"):
                act(store, 1, action, actor="ada")
        assert act(store, 1, "reopen", actor="ada") == "active"
        for wrong in ({"action": "delete"}, {"action": "assign"}, {"action": "snooze", "days": 1000},
                      {"action": "expected", "note": "two\nlines"}):  # fmt: skip
            with pytest.raises(SpecError):
                act(store, 1, actor="ada", **wrong)
        with pytest.raises(NotFoundError):
            act(store, 999, "acknowledge", actor="ada")
    assert len(ACTIONS) == 8


def test_the_audit_log_only_grows(copied):
    with open_store(copied) as store:
        store.access.log("ada", "assign", "alert 1")
        for words in ("DELETE FROM audit", "UPDATE audit SET actor = 'eve'"):
            with store.engine.connect() as connection, pytest.raises(Exception, match="never changed"):
                connection.exec_driver_sql(words)
        assert store.access.audit()[0].actor == "ada"


def test_tokens_on_the_command_line(copied):
    def call(*words):
        return CliRunner().invoke(application(), ["token", *words, "--store", str(copied)])

    text = call("add", "ci", "--scope", "submit", "--days", "30").stdout.strip()
    (listed,) = [json.loads(line) for line in call("list", "--json").stdout.splitlines()]
    assert (listed["name"], listed["scope"], listed["holds"]) == ("ci", "submit", True)
    with open_store(copied) as store:
        assert store.access.token(text).name == "ci"
        assert call("revoke", "1").exit_code == 0
        assert store.access.token(text) is None
        for name, scope, days in (("", "read", 1), ("x", "root", 1), ("x", "read", 0), ("a\nb", "read", 1)):
            with pytest.raises(SpecError):
                store.access.add_token(name, scope, days=days)


def test_what_is_remembered_is_made_again_when_something_new_came_in_and_lazily_without_waiting():
    site, made = Site(None, Setting()), []

    def make():
        made.append(len(made))
        return made[-1]

    assert [site.remembered("a", make, mark) for mark in (1, 1, 2)] == [0, 0, 1]
    assert [site.remembered("b", make, mark, is_lazy=True) for mark in (1, 2)] == [2, 2]
    site._memory["b"].until_s -= OLDEST_S
    assert site.remembered("b", make, 1, is_lazy=True) == 2, "nothing came in: the old one is right however old it is"
    while site._memory["b"].is_making:
        time.sleep(0.001)
    site._memory["b"].until_s -= OLDEST_S
    assert site.remembered("b", make, 2, is_lazy=True) == 4, "what is that old is waited for"
    still = Site(None, Setting(is_static=True))
    assert [still.remembered("c", make, is_lazy=True) for _ in range(2)] == [5, 5]
    made[:] = range(3)
    assert [site.shared("/", (), make), site.shared("/", (), make), site.shared("/x", (), make)] == [3, 3, 4]


def test_a_small_chart_keeps_spikes_and_marked_commits_of_a_long_history(copied):
    with open_store(copied) as store:
        history = store.history(1)
        whole = points_of(history)
        always = {whole[7].sha, whole[31].order_key}
        few = points_of(thinned(history, always, most=10))
        assert len(few) <= 12
        assert {whole[7], whole[31]} <= set(few) <= set(whole), "commits keep all of their launches"
        values = [one.value for one in whole]
        assert {min(values), max(values)} <= {one.value for one in few}
        assert thinned(history, (), most=len(whole)) is history
