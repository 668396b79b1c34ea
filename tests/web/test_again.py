"""Measuring again and bisecting from pages: jobs of the farm behind a token, commands where that cannot be."""

import shlex
import subprocess
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import HERE, served

from nearpeak.core.history.stored_run import Testbed
from nearpeak.farm.device_registry import heartbeat, register, set_service
from nearpeak.farm.job_queue import waiting
from nearpeak.farm.jobs import Device
from nearpeak.farm.leases import take
from nearpeak.farm.queue_views import holdings, job_rows
from nearpeak.store import open_store
from nearpeak.web.measure_actions import _command
from nearpeak.web.server import application
from nearpeak.web.site import case_key

GPU = Device(name="GPU-web-0", host="h1", model="NVIDIA H200")


@pytest.fixture
def store(copied):
    with open_store(copied) as opened:
        yield opened


@pytest.fixture
def farm(store):
    register(store, [GPU, Device(name="GPU-web-1", host="h1", model="NVIDIA H200")])
    return store


@pytest.fixture
def repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    return tmp_path / "repo"


def signed_in(store, **options):
    client = TestClient(application(store, run_token="np_run", **options), base_url=HERE, follow_redirects=False)
    assert client.post("/sign-in", data={"token": "np_run"}).status_code == 303
    return client


def fields_of(text, action):
    """The fields of the form that a button of that action belongs to; none where there is no such button."""
    for part in text.split('<form class="again-form"')[1:]:
        form = part.split("</form>")[0]
        if f'value="{action}">' in form:
            hidden = {bit.split('"')[0]: bit.split('value="')[1].split('"')[0] for bit in form.split('name="')[1:]}
            return hidden | {"action": action}
    return None


def measurable(store):
    """A series, its case, and an alert of the made-up history that are of the H200."""
    return next(one for one in store.series() if one.device == "NVIDIA H200" and one.testbed.name == "torch_cuda")


def test_buttons_put_each_wish_into_the_queue_once(farm, repository):
    client, one = signed_in(farm, repository=repository), measurable(farm)
    for path in (f"/series/{one.id}", f"/cases/{case_key(one.case)}", "/alerts/3"):
        before = len(job_rows(farm, limit=1000))
        fields = fields_of(client.get(path).text, "measure")
        for _ in range(2):
            answer = client.post(f"{path}/jobs", data=fields)
            assert answer.status_code == 303, answer.text
            assert (answer.status_code, answer.headers["location"]) == (303, f"{path}#h-again")
        new = job_rows(farm, limit=1000)[: len(job_rows(farm, limit=1000)) - before]
        assert new, path
        assert {(row.kind, row.state, row.owner, row.trigger) for row in new} == {
            ("measure", "queued", "run token", "rerun")
        }
        page = client.get(path).text
        assert all(row.uid[:12] in page for row in new[:20])
    assert {row.model for row in waiting(farm)} == {"NVIDIA H200"}
    assert farm.access.audit()[0].action == "farm measure"


def test_a_search_goes_to_the_farm_where_the_server_knows_the_repository(farm, repository):
    client = signed_in(farm, repository=repository)
    client.post("/alerts/3/jobs", data=fields_of(client.get("/alerts/3").text, "bisect"))
    (row,) = job_rows(farm, subjects=["bisect alert 3"])
    assert (row.kind, row.trigger, row.state) == ("bisect", "bisect", "queued")
    assert row.uid[:12] in client.get("/alerts/3").text
    without = signed_in(farm)
    fields = fields_of(without.get("/alerts/3").text, "measure")
    assert fields_of(without.get("/alerts/3").text, "bisect") is None
    assert without.post("/alerts/3/jobs", data=fields | {"action": "bisect"}).status_code == 400


def test_without_a_token_or_a_farm_the_command_is_shown(store):
    nobody = TestClient(application(store), base_url=HERE)
    one = measurable(store)
    for client in (nobody, signed_in(store)):
        for path in (f"/series/{one.id}", f"/cases/{case_key(one.case)}", "/alerts/3"):
            text = client.get(path).text
            assert 'again-form" method' not in text
            assert "nearpeak farm submit measure" in text
        assert "nearpeak bisect --good" in client.get("/alerts/3").text
    assert "lent to a farm" in signed_in(store).get(f"/series/{one.id}").text


def test_no_job_without_token_mark_and_origin(farm):
    client, path = signed_in(farm), f"/series/{measurable(farm).id}"
    fields = fields_of(client.get(path).text, "measure")
    nobody = TestClient(application(farm), base_url=HERE)
    reader = {"authorization": f"Bearer {farm.access.add_token('r', 'read', days=1)}"}
    assert nobody.post(f"{path}/jobs", data=fields).status_code == 401
    assert nobody.post(f"{path}/jobs", data=fields, headers=reader).status_code == 403
    assert client.post(f"{path}/jobs", data=fields | {"mark": "x"}).status_code == 403
    assert client.post(f"{path}/jobs", data=fields, headers={"origin": "http://evil"}).status_code == 403
    for wrong in ({"action": "rm"}, {"action": "bisect"}, {"once": ""}, {"once": "x" * 40}):
        assert client.post(f"{path}/jobs", data=fields | wrong).status_code == 400
    for missing in ("/series/9999", "/alerts/9999", "/cases/none"):
        assert client.post(f"{missing}/jobs", data=fields).status_code == 404
    assert job_rows(farm) == ()


def test_a_runner_that_names_a_program_is_never_submitted(farm):
    one = measurable(farm)
    assert shlex.split(_command(one, ["NVIDIA H200"]))[-2:] == ["--model", "NVIDIA H200"]
    for name in ("process:rm -rf /", "callable:evil.py:run", "nobody knows"):
        assert _command(replace(one, testbed=Testbed(name=name, policy={})), ["NVIDIA H200"]) == ""


def test_the_fleet_shows_who_holds_what(farm):
    client = signed_in(farm)
    path = f"/series/{measurable(farm).id}"
    client.post(f"{path}/jobs", data=fields_of(client.get(path).text, "measure"))
    (row,) = waiting(farm)
    lease = take(farm, [GPU.name], row.id, holder="h1:7:word", ttl_s=60.0)
    set_service(farm, "draining", device="GPU-web-1", note="a new fan")
    heartbeat(farm, "local", {})
    (held,) = holdings(farm).values()
    assert (held.kind, held.job_count, held.job) == ("measure", 1, lease.jobs[0].uid)
    text = client.get("/fleet").text
    for said in (
        GPU.name,
        "in service",
        "draining",
        "a new fan",
        f"measure {held.job[:12]}",
        "h1:7:word",
        "Lease ends",
    ):
        assert said in text, said
    (table,) = [client.get("/fleet?table=leases&format=json").json()["rows"]]
    assert [(one["device"], one["job"], one["fencing_token"]) for one in table] == [
        (GPU.name, held.job, lease.fencing_token), ("GPU-web-1", None, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("width", [390, 1440])
def test_buttons_work_in_a_browser(watched, farm, width):
    watched.page.set_viewport_size({"width": width, "height": 900})
    with served(farm.name, run_token="np_run") as address:
        watched.page.goto(f"{address}/sign-in#np_run")
        watched.page.click("main button")
        watched.page.wait_for_selector(".waiting.current")
        for path in ("/alerts/3", f"/series/{measurable(farm).id}", f"/cases/{case_key(measurable(farm).case)}"):
            page = watched.open(address + path)
            page.click(".again-form button[value=measure]")
            page.wait_for_selector("#table-asked tbody tr")
            assert "queued" in page.inner_text("#table-asked")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page = watched.open(f"{address}/fleet")
        assert "GPU-web-0" in page.inner_text("#table-leases")
        assert "queued" in page.inner_text("#table-queue")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
