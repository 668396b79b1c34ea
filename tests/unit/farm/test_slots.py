"""Small jobs under one lease: a job that ends its process takes no other with it."""

import json
import time

import pytest

from nearpeak.base.isolation import Ending, call_isolated
from nearpeak.errors import MeasureError
from nearpeak.farm import core_slots
from nearpeak.farm.jobs import LeasedJob
from nearpeak.ops import case


def jobs(count):
    record = case("gemm", m=32, n=32, k=32, dtype="fp32").record()
    return [
        LeasedJob(id=number, uid=str(number), kind="predict", text=json.dumps({"case": record, "target": "h100_sxm"}))
        for number in range(count)
    ]


def test_jobs_run_in_a_warmed_process_and_each_has_its_time():
    found = core_slots.run_on_slot("here/0", jobs(3))
    assert [one.failed for one in found] == [False] * 3
    assert len({one.text for one in found}) == 1
    assert all(0 < one.time_s < 5 for one in found)


def test_a_slot_inherits_no_secret(monkeypatch):
    asked = []
    monkeypatch.setattr(
        core_slots, "call_isolated", lambda *_, **more: asked.append(more) or Ending(verdict="timeout", value=None)
    )
    for name in ("NEARPEAK_STORE", "NEARPEAK_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    core_slots.run_on_slot("here/0", jobs(1))
    assert asked[0]["inherits"] is False
    assert "secret" not in asked[0]["variables"].values()
    own = {"variables": asked[0]["variables"], "inherits": False, "timeout_s": 60, "memory_bytes": None}
    assert call_isolated("os:getenv", {"key": "NEARPEAK_TOKEN"}, **own).value is None
    assert call_isolated("os:getenv", {"key": "NEARPEAK_FARM_SLOT"}, **own).value == "here/0"


def test_a_batch_is_halved_until_only_the_job_that_crashes_is_left(monkeypatch):
    called = []

    def dies_with_the_third(function, arguments, **more):
        called.append(len(arguments["jobs"]))
        if any("h200" in payload for _, payload in arguments["jobs"]):
            return Ending(verdict="died", value=-11)
        return Ending(verdict="result", value=core_slots.answers(**arguments))

    monkeypatch.setattr(core_slots, "call_isolated", dies_with_the_third)
    wanted = jobs(6)
    wanted[2] = LeasedJob(id=2, uid="2", kind="predict", text=wanted[2].text.replace("h100_sxm", "h200_sxm"))
    found = core_slots.run_on_slot("here/0", wanted)
    assert [one.failed for one in found] == [False, False, True, False, False, False]
    assert json.loads(found[2].text) == {"outcome": "crash", "message": "it ended its process (SIGSEGV)"}
    assert called == [6, 3, 1, 2, 1, 1, 3]


def test_a_job_that_does_not_end_is_a_timeout(monkeypatch):
    monkeypatch.setattr(core_slots, "call_isolated", lambda *_, **__: Ending(verdict="timeout", value=None))
    (found,) = core_slots.run_on_slot("here/0", jobs(1))
    assert (found.failed, json.loads(found.text)["outcome"]) == (True, "timeout")


def test_a_process_gives_what_it_has_after_a_while_and_the_rest_goes_to_another(monkeypatch):
    called = []

    def slow(kind, payload):
        time.sleep(0.02)
        return {"result": payload}

    def here(function, arguments, **more):
        called.append((len(arguments["jobs"]), more["timeout_s"]))
        return Ending(verdict="result", value=core_slots.answers(**arguments))

    monkeypatch.setattr(core_slots, "answer", slow)
    monkeypatch.setattr(core_slots, "ENOUGH_S", 0.01)
    monkeypatch.setattr(core_slots, "call_isolated", here)
    assert len(core_slots.run_on_slot("here/0", jobs(3))) == 3
    assert called == [(3, 600.01), (2, 600.01), (1, 600.0)]


def test_a_slot_whose_lease_is_lost_begins_no_other_process(monkeypatch):
    called = []

    def here(function, arguments, **more):
        called.append(len(arguments["jobs"]))
        return Ending(verdict="timeout", value=None)

    monkeypatch.setattr(core_slots, "call_isolated", here)
    with pytest.raises(MeasureError, match="the lease was lost"):
        core_slots.run_on_slot("here/0", jobs(4), lambda: len(called) == 2)
    assert called == [4, 2]


def test_a_capture_in_a_slot_starts_its_own_limited_process():
    found = core_slots.run_on_slot("here/0", [job_of("capture", {"source": "gpt2", "layers": None, "sequence": 8})])
    assert not found[0].failed, found[0].text
    assert json.loads(found[0].text)["covered_count"] > 50


def job_of(kind, payload):
    return LeasedJob(id=1, uid="1", kind=kind, text=json.dumps(payload))
