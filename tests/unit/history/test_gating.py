"""Gates over a store: which revision, which baseline, bounds and predictions of real cases."""

import subprocess

import pytest

from nearpeak.core.history.stored_run import TIME, Device, Metric, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.gate.evaluation import gated
from nearpeak.gate.policy_file import policy_of
from nearpeak.history.demo_series import demo_revisions, planted
from nearpeak.store import open_store

SHAS = [one.sha for one in demo_revisions(120, 0)]
SLOW = planted(120)[4].commit


def gate(store, *rules, **options):
    return gated(store, policy_of("\n".join(rules), "gate.toml"), **options)


def rule(baseline="previous", **more):
    lines = {"name": repr("r"), "baseline": repr(baseline)} | more
    return "[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items())


SOFTMAX = "{ op = 'softmax', target = 'mi300x' }"


def test_a_planted_regression_fails_against_previous_and_against_several_before(store):
    for baseline in ({}, {"baseline": "rolling", "window": 10}):
        found = gate(store, rule(**baseline, select=SOFTMAX), revision=SHAS[SLOW])
        assert (found.verdict, found.exit_code, len(found.lines)) == ("fail", 10, 2)
        assert all(1.10 < line.judgement.time_ratio < 1.14 for line in found.lines)


def test_a_quiet_commit_passes_and_the_newest_is_judged_unless_another_is_named(store):
    found = gate(store, rule("rolling", window=20, select=SOFTMAX))
    assert (found.verdict, found.revision) == ("pass", SHAS[-1])
    assert gate(store, rule(select=SOFTMAX), revision=SHAS[SLOW - 5][:10]).verdict == "pass"


def test_a_tag_is_a_measured_commit_or_is_looked_up_in_the_repository(store, tmp_path):
    found = gate(store, rule("tag", tag=repr(SHAS[SLOW - 1][:12]), select=SOFTMAX))
    assert found.verdict == "fail"
    with pytest.raises(SpecError, match="'v1' is no measured commit; give --repository"):
        gate(store, rule("tag", tag=repr("v1")))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(SpecError, match="v1"):
        gate(store, rule("tag", tag=repr("v1")), repository=tmp_path)


def test_bound_and_prediction_are_those_of_the_cases_on_their_devices(store):
    near = gate(store, rule("bound", at_least=repr("60%"), select=SOFTMAX))
    assert {line.verdict for line in near.lines} == {"fail", "pass"}  # 59 % after the regression, and 74 %
    found = gate(store, rule("prediction", tolerance=repr("99%"), select="{ op = 'gemm', target = 'h100*' }"))
    assert all("against its prediction" in line.text for line in found.lines)


def test_the_first_commit_has_no_baseline_and_is_inconclusive(store):
    found = gate(store, rule(), revision=SHAS[0])
    assert found.exit_code == 11
    assert "no baseline" in found.lines[0].text


@pytest.mark.parametrize(("options", "words"), [
    ({"revision": "ffffffff"}, "was not measured"), ({"branch": "other"}, "no measured commits"),
    ({"metric": "energy"}, "no measured commits"),
])  # fmt: skip
def test_what_was_not_measured_is_said(store, options, words):
    with pytest.raises(NotFoundError, match=words):
        gate(store, rule(), **options)


def ingested(store, values, *, runs=1, clocks=None, metric=TIME):
    """Put one value per commit into a store; the last commit is measured so many times."""
    for position, value in enumerate(values):
        clock = None if clocks is None else clocks[position]
        for number in range(runs if position == len(values) - 1 else 1):
            samples = SampleSet(
                case="c", label="c", metric=metric, testbed=Testbed(name="b"), values=(value,), clock_hz=clock
            )
            store.ingest(
                RunRecord(device=Device(name="d"), samples=(samples,), source=Source(digest=f"{position} {number}"),
                          revision=Revision(sha=f"{position:040d}", repository="r", position=position))
            )  # fmt: skip


QUIET = [1 + 0.001 * (position % 3) for position in range(30)]


@pytest.fixture
def empty(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as opened:
        yield opened


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, "fail"), (1.1, "pass")])
def test_a_metric_of_which_more_is_better_fails_when_it_falls(empty, factor, verdict):
    rate = Metric(name="throughput", unit="1/s", direction="higher", kind="throughput")
    ingested(empty, [*QUIET, factor], runs=2, metric=rate)
    assert gate(empty, rule("rolling", window=5), metric="throughput").verdict == verdict


@pytest.mark.parametrize("baseline", [{}, {"baseline": "rolling", "window": 10}])
def test_one_run_alone_does_not_fail_and_a_second_run_or_the_next_commit_does(empty, tmp_path, baseline):
    ingested(empty, [*QUIET, 1.06])
    first = gate(empty, rule(**baseline))
    assert (first.exit_code, "measure this revision again" in first.lines[0].text) == (11, True)
    ingested(empty, [*QUIET, 1.06], runs=2)
    assert "in 2 of 2 runs" in gate(empty, rule(**baseline)).lines[0].text
    with open_store(tmp_path / "b.db", create=True) as store:
        ingested(store, [*QUIET, 1.06, 1.061])
        found = gate(store, rule(**baseline))
        assert (found.exit_code, "at 2 commits in a row" in found.lines[0].text) == (10, True)


def test_a_spike_of_the_previous_commit_is_no_baseline_and_one_of_a_tag_neither(empty):
    ingested(empty, [*QUIET[:20], 0.93, *QUIET[:9], 0.94, 1.0], runs=2)
    assert gate(empty, rule()).verdict == "pass"
    assert gate(empty, rule("tag", tag=repr(f"{20:040d}"))).verdict == "pass"


def test_states_that_come_and_go_fail_neither_by_commits_nor_by_runs(empty):
    ingested(empty, [*QUIET, *[1.05] * 4, *QUIET[:8], *[1.05] * 3, *QUIET[:8], 1.05, 1.05], runs=2)
    found = gate(empty, rule("rolling", window=10))
    assert (found.exit_code, "came and went by itself" in found.lines[0].text) == (11, True)


def test_a_lower_clock_is_taken_out_where_its_share_is_known_and_decides_nothing_where_not(empty, tmp_path):
    clocks = [2e9] * 10 + [1.9e9] * 5 + [2e9] * 15 + [1.9e9] * 2
    times = [2e9 / clock * QUIET[0 if i > 29 else i] for i, clock in enumerate(clocks)]
    ingested(empty, times, clocks=clocks, runs=2)
    known = gate(empty, rule("rolling", window=10))
    assert (known.verdict, "at equal clocks: clock -5.0%, +5.2% time with it" in known.lines[0].text) == ("pass", True)
    with open_store(tmp_path / "b.db", create=True) as store:
        ingested(store, [*QUIET, 1.05], clocks=[2e9] * 30 + [2e9 / 1.05], runs=2)
        unknown = gate(store, rule("rolling", window=10))
        assert (unknown.exit_code, "how much of the clock shows" in unknown.lines[0].text) == (11, True)


def test_a_revision_that_names_several_commits_is_refused(store):
    letter = SHAS[0][0]
    with pytest.raises(SpecError, match="more letters"):
        gate(store, rule(), revision=letter)


def test_of_launches_the_worst_decides_and_a_later_run_of_the_revision_replaces_it(tmp_path):
    def launch(outcome, number):
        values = (1e-6, 1.1e-6) if outcome == "converged" else ()
        return SampleSet(
            case="c", label="c", metric=TIME, testbed=Testbed(name="t"), values=values, launch=number, outcome=outcome
        )

    def record(number, *outcomes):
        return RunRecord(
            device=Device(name="d"), samples=tuple(launch(outcome, place) for place, outcome in enumerate(outcomes)),
            source=Source(digest=str(number)), revision=Revision(sha="a" * 40), started_ns=number,
        )  # fmt: skip

    with open_store(tmp_path / "a.db", create=True) as store:
        store.ingest(record(1, "converged", "crash", "converged"))
        (line,) = gate(store, rule()).lines
        assert (line.verdict, line.exit_code, line.text) == ("fail", 10, "it crashed at this revision")
        store.ingest(record(2, "converged", "converged"))
        assert gate(store, rule()).lines[0].verdict == "inconclusive"
