"""What goes first, what waits no longer than it may, what a budget refuses, and what is asked for twice."""

import json
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from tests.unit.farm.conftest import program, queued
from tests.unit.farm.test_leases import DONE, states

from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.farm import batch_priority, job_queue, leases
from nearpeak.farm.comparison_rounds import check_effect, note_noise, rounds, rounds_needed
from nearpeak.farm.device_registry import DeviceState, devices, set_noise
from nearpeak.farm.dispatcher import serves
from nearpeak.farm.farm_status import job, jobs, overview
from nearpeak.farm.job_results import results, row_of
from nearpeak.farm.jobs import BatchRequest, Device, Outcome, WaitingBatch
from nearpeak.farm.kinds import KINDS
from nearpeak.ops import case
from nearpeak.store.sql_dialect import writing


@pytest.fixture
def make_place(tmp_path):
    """Order, budgets and payloads are the same on both engines; leases are tested on each."""
    return lambda: str(tmp_path / "store.db")


GEMM = case("gemm", m=32, n=32, k=32, dtype="fp32").record()


def batch(number, priority=6, waited_s=0.0, owner="a", **more):
    known = {"cost_s": 60.0, "comparison": "", "round": 0, "attempt_count": 0, "begun": False, **more}
    return WaitingBatch(
        id=number, uid=str(number), pool="device", device="", model="", priority=priority, owner=owner,
        waited_s=waited_s, **known,
    )  # fmt: skip


def order(*batches, **used):
    return [one.id for one in batch_priority.ordered(batches, used)]


def test_what_someone_waits_for_goes_before_what_fills_idle_time():
    assert order(batch(1, 7), batch(2, 6), batch(3, 2), batch(4, 4)) == [3, 4, 2, 1]


def test_the_rest_of_a_comparison_that_has_begun_goes_first():
    begun = batch(2, 6, comparison="c", round=1, started=True)
    lost = batch(3, 6, comparison="d", begun=True, attempt_count=1)
    assert set(order(batch(1, 2), begun, lost)[:2]) == {2, 3}


def test_waiting_raises_a_batch_by_one_priority_an_hour():
    assert order(batch(1, 2, 0.0), batch(2, 7, 5.2 * 3600)) == [2, 1]
    assert order(batch(1, 2, 0.0), batch(2, 7, 3.9 * 3600)) == [1, 2]


def test_owners_share_a_device_by_what_they_have_used():
    mine = [batch(number, owner="a") for number in (1, 2, 3)]
    theirs = [batch(number, owner="b") for number in (4, 5)]
    assert order(*mine, *theirs) == [1, 4, 2, 5, 3]
    assert order(*mine, *theirs, a=1000.0) == [4, 5, 1, 2, 3]


def test_a_noisy_device_serves_only_what_asks_for_no_small_difference():
    noisy = DeviceState(
        device=Device(name="a"), service="open", note="", noise_ratio=0.03, batch=None, holder="", fencing_token=0,
        left_s=0.0,
    )  # fmt: skip
    every = [batch(number, number) for number in range(1, 8)]
    assert [one.id for one in every if serves(noisy, one, 0.02)] == [1, 6, 7]
    assert all(serves(noisy, one, 0.04) for one in every)


def test_no_sweep_starves_while_gates_keep_coming():
    draw, now_s, waiting, begun_s = random.Random(0), 0.0, {0: (7, 0.0)}, {}
    for number in range(1, 2000):
        waiting[number] = (draw.choice((2, 3, 5)), now_s)
        found = batch_priority.ordered([batch(n, p, now_s - at_s) for n, (p, at_s) in waiting.items()], {})
        begun_s[found[0].id] = now_s
        del waiting[found[0].id]
        now_s += 60.0
        if number % 3 == 0:  # more is asked for than the device can do
            waiting[10_000 + number] = (2, now_s)
        if 0 in begun_s:
            break
    assert begun_s[0] <= 7 * batch_priority.STEP_S


@given(st.lists(st.tuples(st.integers(1, 7), st.floats(0, 1e5), st.sampled_from("abc")), max_size=30))
def test_every_waiting_batch_has_its_place(rows):
    batches = [batch(number, *row) for number, row in enumerate(rows)]
    found = batch_priority.ordered(batches, {"a": 5.0})
    assert sorted(one.id for one in found) == list(range(len(rows)))
    ranks = [int(batch_priority.rank(one) // 1) for one in found]
    assert ranks == sorted(ranks)


def test_a_job_that_is_asked_for_twice_is_there_once(farm):
    first = job_queue.submit(farm, [program("1"), program("2")])
    again = job_queue.submit(farm, [program("1"), program("2"), program("1", "next night")])
    assert (first.new_count, again.new_count, again.known_count) == (2, 1, 2)
    assert again.uids[:2] == first.uids
    with pytest.raises(SpecError, match="the same job stands twice"):
        job_queue.submit(farm, [program("3"), program("3")])
    both = BatchRequest(jobs=(*program("1").jobs, *program("4").jobs), pool="device")
    with pytest.raises(SpecError, match="as part of another"):
        job_queue.submit(farm, [both])


def test_a_budget_refuses_what_is_over_it_and_says_the_number(farm, names):
    job_queue.set_budget(farm, "pr", 25.0)
    found = job_queue.submit(farm, [program(str(number), trigger="pr") for number in range(4)])
    assert len(found.refused) == 2
    assert "20 s of 25 s a day are spent, and this needs 10 s" in found.refused[0][1]
    assert states(farm) == ["queued", "queued", "rejected", "rejected"]
    assert job_queue.submit(farm, [program("other", trigger="nightly")]).refused == ()
    job_queue.set_budget(farm, "pr", 1000.0)
    assert job_queue.submit(farm, [program("9", trigger="pr")]).refused == ()
    assert overview(farm)["budgets"] == {"pr": 1000.0}


def test_a_refused_batch_that_is_asked_for_again_is_looked_at_again(farm):
    job_queue.set_budget(farm, "pr", 15.0)
    requests = [program(str(number), trigger="pr") for number in range(2)]
    assert len(job_queue.submit(farm, requests).refused) == 1
    again = job_queue.submit(farm, requests)
    assert (len(again.refused), again.known_count) == (1, 1)
    job_queue.set_budget(farm, "pr", 1000.0)
    found = job_queue.submit(farm, requests)
    assert (found.new_count, found.known_count, found.refused) == (1, 1, ())
    assert states(farm) == ["queued", "queued"]


def test_a_job_in_the_wrong_pool_and_an_unknown_trigger_are_refused(farm):
    with pytest.raises(SpecError, match="kind command runs in pool device, not in slot"):
        job_queue.submit(farm, [BatchRequest(jobs=program("1").jobs, pool="slot")])
    with pytest.raises(SpecError, match="trigger 'because' is not known; there are manual"):
        program("1", trigger="because")


def test_an_optional_entry_may_be_null_and_a_number_is_no_truth_value():
    KINDS["capture"].check({"source": "hf:bert", "step": None})
    with pytest.raises(SpecError, match="'limit_s' is True, of the wrong type"):
        KINDS["command"].check({"words": ["a"], "limit_s": True})


def test_costs_are_what_the_same_took_before(farm, names):
    (number,) = queued(farm, program("1"))
    leases.publish(farm, leases.take(farm, names, number), [Outcome(text=json.dumps({"time_s": 1.0}), time_s=123.0)])
    queued(farm, program("1", "again"))
    assert [one.cost_s for one in job_queue.waiting(farm)] == [123.0]


def test_a_comparison_that_could_not_see_what_it_asks_for_is_refused(farm, names):
    with pytest.raises(SpecError, match="no A/A comparison has shown"):
        check_effect(farm, "", 0.01, 5)
    set_noise(farm, names[0], 0.01)
    with pytest.raises(SpecError, match=rf"1\.00% on {names[0]} needs 52 launches; --rounds 5 gives 20"):
        check_effect(farm, "", 0.01, 5)
    check_effect(farm, "", 0.01, rounds_needed(0.01, 0.01))


def test_rounds_of_the_same_against_itself_say_how_noisy_a_device_is(farm, names):
    arm = {"words": [sys.executable, "-c", "1"]}
    requests = rounds("command", (arm, arm), 3)
    job_queue.submit(farm, requests)
    for high in (1.01, 1.00, 0.99):
        (waiting,) = job_queue.waiting(farm)
        times = [1.0, high, high, 1.0]
        lease = leases.take(farm, names[:1], waiting.id)
        leases.publish(farm, lease, [Outcome(text=json.dumps({"time_s": one}), time_s=one) for one in times])
    found = note_noise(farm, requests[0].comparison)
    assert found == pytest.approx(0.01, rel=0.01)
    assert next(one.noise_ratio for one in devices(farm) if one.device.name == names[0]) == found


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("predict", {"case": GEMM}, "has no 'target'"),
        ("predict", {"case": GEMM, "target": "h200"}, "target 'h200': not known"),
        ("predict", {"case": {**GEMM, "op": "gem"}, "target": "h200_sxm"}, "did you mean gemm"),
        ("predict", {"case": {"op": 3}, "target": "h200_sxm"}, "needs op, phase"),
        ("simulate", {"case": GEMM, "target": 7}, "of the wrong type"),
        ("capture", {"source": "x", "step": "sideways"}, "step 'sideways' is not one of"),
        ("measure", {"case": GEMM, "runner": "torhc_cpu"}, "runner 'torhc_cpu': not known"),
        ("measure", {"case": GEMM, "runner": "numpy", "timing": {"budget": 1}}, "'budget' is not a field"),
        ("measure", {"case": GEMM, "runner": "numpy", "timing": {"budget_s": -1.0}}, "must be more than 0"),
        ("measure", {"case": GEMM, "runner": "numpy", "timing": {"cache": "warm"}}, "must be one of cold, hot"),
        ("measure", {"case": GEMM, "runner": "numpy", "revision": {"shaa": "1"}}, "is no commit"),
        ("command", {"words": []}, "must be a program"),
        ("command", {"words": ["a"], "limit_s": float("nan")}, "must be more than 0"),
        ("command", {"words": ["a"], "shell": True}, "'shell' is not known"),
    ],
)
def test_a_payload_that_cannot_run_is_refused_in_one_line(kind, payload, said):
    with pytest.raises(SpecError, match=said) as caught:
        KINDS[kind].check(payload)
    assert "\n" not in str(caught.value)


def test_a_damaged_result_is_not_shown_as_data(farm, names):
    request = program("1")
    (number,) = queued(farm, request)
    leases.publish(farm, leases.take(farm, names, number), [DONE])
    assert job(farm, request.jobs[0].uid[:10])["result"] == {"time_s": 1.0}
    with writing(farm.engine, farm.name) as connection:
        connection.execute(update(job_queue.RESULT).values(result=json.dumps({"time_s": 2.0})))
    with pytest.raises(StoreError, match="damaged on disk"):
        job(farm, request.jobs[0].uid)
    with pytest.raises(NotFoundError, match="is not in the queue"):
        job(farm, "none")


def test_a_batch_that_ends_its_holders_is_given_up(farm, names, monkeypatch):
    monkeypatch.setattr(job_queue, "LOST_COUNT", 2)
    (number,) = queued(farm, program("1"))
    for _ in range(2):
        leases.take(farm, names[:1], number, ttl_s=0.0)
        assert job_queue.reclaim(farm) == 1
    assert states(farm) == ["failed"]
    (entry,) = results(farm)
    assert entry["result"] == {"outcome": "failed", "message": "failed: 2 holders were lost while they ran it"}
    assert row_of(entry)["message"] == jobs(farm, state="failed")[0]["note"] == entry["result"]["message"]
