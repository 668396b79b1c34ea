"""Small jobs under one lease: a job that ends its process takes no other with it."""

from nearpeak.farm import slots
from nearpeak.farm.values import JobRequest
from nearpeak.isolation import Ending
from nearpeak.ops import case


def jobs(count):
    record = case("gemm", m=32, n=32, k=32, dtype="fp32").record()
    return [
        JobRequest(kind="predict", payload={"case": record, "target": "h100_sxm"}, key=str(number))
        for number in range(count)
    ]


def test_jobs_run_in_a_warmed_process_and_each_has_its_time():
    found = slots.run_on_slot("here/0", jobs(3))
    assert [one.failed for one in found] == [False] * 3
    assert len({one.result["time_s"] for one in found}) == 1
    assert all(0 < one.time_s < 5 for one in found)


def test_a_batch_is_halved_until_only_the_job_that_crashes_is_left(monkeypatch):
    called = []

    def dies_with_the_third(function, arguments, **more):
        called.append(len(arguments["jobs"]))
        if any("h200" in payload for _, payload in arguments["jobs"]):
            return Ending(verdict="died", value=-11)
        return Ending(verdict="result", value=slots.answers(arguments["jobs"]))

    monkeypatch.setattr(slots, "call_isolated", dies_with_the_third)
    wanted = jobs(6)
    wanted[2] = JobRequest(kind="predict", payload={**wanted[2].payload, "target": "h200_sxm"})
    found = slots.run_on_slot("here/0", wanted)
    assert [one.failed for one in found] == [False, False, True, False, False, False]
    assert found[2].result == {"outcome": "crash", "message": "it ended its process (SIGSEGV)"}
    assert called == [6, 3, 1, 2, 1, 1, 3]


def test_a_job_that_does_not_end_is_a_timeout(monkeypatch):
    monkeypatch.setattr(slots, "call_isolated", lambda *_, **__: Ending(verdict="timeout", value=None))
    (found,) = slots.run_on_slot("here/0", jobs(1))
    assert (found.failed, found.result["outcome"]) == (True, "timeout")
