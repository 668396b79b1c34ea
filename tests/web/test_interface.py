"""The interface for programs: described as it is, closed to those without a token, exact about what it takes."""

import json
import threading
from contextlib import suppress

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra web)")
pytest.importorskip("httpx", reason="httpx is not installed (extra dev)")
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Route
from starlette.testclient import TestClient
from tests.unit.store.records import BYTES, contents, random_run, run, samples
from tests.web.conftest import HERE, evil_run, served

from nearpeak.errors import MeasureError, SpecError
from nearpeak.exchange.run_lines import MOST_BYTES, parse_json, parse_run, run_record
from nearpeak.store import open_store
from nearpeak.store.run_replay import records_of
from nearpeak.web.api import ENDPOINTS, description
from nearpeak.web.run_push import push
from nearpeak.web.server import application


@pytest.fixture
def store(tmp_path):
    """A small store with an alert."""
    with open_store(tmp_path / "store.db", create=True) as opened:
        opened.ingest_all([random_run(number) for number in range(100, 104)])
        opened.findings.open_alert("slower", {})
        yield opened


@pytest.fixture
def other(tmp_path):
    """The place of an empty store that is served."""
    open_store(tmp_path / "other.db", create=True).close()
    return tmp_path / "other.db"


@pytest.fixture
def client(store):
    return TestClient(application(store), base_url=HERE)


def held(store, scope="submit", days=1):
    name = f"test {len(store.access.tokens())}"
    return {"authorization": f"Bearer {store.access.add_token(name, scope, days=days)}"}


def body(*runs):
    return {"runs": [json.loads(json.dumps(run_record(one))) for one in runs]}


def test_the_description_matches_the_routes(client):
    told = client.get("/api/v1/openapi.json").json()
    assert told == json.loads(json.dumps(description()))
    routes = {(method, one.path) for one in client.app._app.routes if isinstance(one, Route) for method in one.methods}
    real = {one for one in routes if one[1].startswith("/api/") and one[0] != "HEAD"} - {
        ("GET", "/api/v1/openapi.json")
    }
    assert {(method.upper(), path) for path, found in told["paths"].items() for method in found} == real
    assert len({one.name for one in ENDPOINTS}) == len(ENDPOINTS)


def test_what_is_answered_has_the_fields_that_are_described(client):
    for one in ENDPOINTS:
        if one.method == "GET":
            path = one.path.replace("{series}", "1").replace("{run}", "1").replace("{alert}", "1")
            found = client.get(f"/api/v1{path}")
            assert found.status_code == 200, path
            assert set(one.gives.get("required", ())) <= set(found.json()), path


@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/alerts/1/actions", "/alerts/1/actions"])
def test_nothing_is_written_without_a_token_that_may(store, client, path):
    before = store.info(), store.access.audit()
    read, ended = held(store, "read"), held(store, days=1e-9 + 0.001)
    store.access.revoke(store.access.tokens()[-1].id)
    sent = {"json": body(random_run(5))} if "runs" in path else {"json": {"action": "expected"}}
    for headers in ({}, read, ended, {"authorization": "Bearer np_wrong"}, {"cookie": "nearpeak_token=np_wrong"}):
        answer = client.post(path, headers=headers, **sent)
        assert answer.status_code in (401, 403), headers
    assert store.info() == before[0]
    assert [one.action for one in store.access.audit()][3:] == [one.action for one in before[1]]


def test_a_cookie_alone_writes_through_the_forms_of_this_site_only(store):
    client = TestClient(application(store, run_token="np_run"), base_url=HERE, cookies={"nearpeak_token": "np_run"})
    page = client.get("/").text
    mark = page.partition('name="mark" value="')[2].partition('"')[0]
    form = {"action": "acknowledge", "mark": mark}
    assert client.post("/alerts/1/actions", data=form, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/alerts/1/actions", data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post("/alerts/1/actions", data={**form, "mark": "x"}).status_code == 403
    assert client.post("/api/v1/alerts/1/actions", json={"action": "acknowledge"}).status_code == 401
    assert store.findings.status_of(1) == "new"
    assert client.post("/alerts/1/actions", data=form, follow_redirects=False).status_code == 303
    assert store.findings.status_of(1) == "acknowledged"


def test_tokens_and_what_was_done_are_shown_to_administrators_only(store, client):
    store.access.log("ada", "assign", "alert 1", "to bob")
    for headers in ({}, held(store, "read"), held(store, "submit")):
        assert "to bob" not in client.get("/settings", headers=headers).text
        assert client.get("/settings?table=audit&format=json", headers=headers).status_code == 404
    admin = held(store, "admin")
    assert "to bob" in client.get("/settings", headers=admin).text
    assert "to bob" in client.get("/settings?table=audit&format=csv", headers=admin).text
    assert "to bob" not in client.get("/settings").text, "what one sees is not kept for others"


def test_what_is_done_and_its_line_in_the_log_are_kept_together_or_not_at_all(store, client, monkeypatch):
    headers = held(store)

    def broken(*_):
        raise SpecError("no line can be written")

    monkeypatch.setattr("nearpeak.store.access_tokens.add_entry", broken)
    monkeypatch.setattr("nearpeak.store.database.add_entry", broken)
    before = store.info()
    sent = {"runs": body(random_run(7)), "alerts/1/actions": {"action": "acknowledge"}}
    for path, found in sent.items():
        assert client.post(f"/api/v1/{path}", json=found, headers=headers).status_code == 400
    assert store.info() == before
    assert [one.to_status for one in store.findings.events(1)] == ["new"]
    monkeypatch.undo()
    for path, found in sent.items():
        assert client.post(f"/api/v1/{path}", json=found, headers=headers).status_code < 300
    assert [one.action for one in store.access.audit()][:2] == ["acknowledge", "send runs"]


def test_a_private_dashboard_shows_nothing_without_a_token(store):
    client = TestClient(application(store, is_private=True), base_url=HERE)
    for path in ("/", "/series/1", "/api/v1/series", "/raw/workloads/gemm-16188283", "/?table=alerts&format=csv"):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code in (303, 401), path
        assert "softmax" not in answer.text
    assert client.get("/api/v1/series", headers=held(store, "read")).status_code == 200


def test_tokens_are_kept_as_hashes(store, tmp_path):
    text = store.access.add_token("ci", "submit", days=1)
    store.close()
    data = b"".join(one.read_bytes() for one in tmp_path.glob("store.db*"))
    assert b"submit" in data
    assert text.encode() not in data


def test_runs_that_are_sent_twice_are_there_once_with_their_samples(store, client, tmp_path):
    headers = held(store)
    sent = [random_run(number) for number in range(3)] + [run(9, [samples("b", [1 << 60, 3], BYTES)]), evil_run(3)]
    first, second = (client.post("/api/v1/runs", json=body(*sent), headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert [one["new"] for one in second.json()["runs"]] == [False] * 5
    with open_store(tmp_path / "direct.db", create=True) as direct:
        direct.ingest_all(sent)
        there, wanted = contents(store), contents(direct)
    assert {key: there[key] for key in wanted} == wanted


def test_all_runs_of_a_body_are_written_or_none(store, client):
    wrong = body(random_run(1), random_run(2))
    wrong["runs"][1]["samples"][0]["metric"]["unit"] = "furlong"
    wrong["runs"][1]["samples"][0]["metric"]["name"] = "time"
    before = store.info()["run"]
    answer = client.post("/api/v1/runs", json=wrong, headers=held(store))
    assert (answer.status_code, store.info()["run"]) == (400, before)


@pytest.mark.parametrize(("data", "kind", "status"), [
    (b"[" * 100_000, "application/json", 400), (b'{"runs":' + b"[" * 40 + b"]" * 40 + b"}", "application/json", 400),
    (b"a" * (MOST_BYTES + 1), "application/json", 413), (b"{}", "text/plain", 415),
    (b"\xff\xfe", "application/json", 400), (b'{"runs":[NaN]}', "application/json", 400),
    (b"[" + b"[]," * 400_000 + b"1]", "application/json", 400),
    (b'["' + b"\\" * 10**6 + b'"]', "application/json", 400),
    (b'{"runs":[]}', "application/json", 400), (b"1e999", "application/json", 400),
])  # fmt: skip
def test_bodies_are_bounded_in_size_and_nesting(store, client, data, kind, status):
    headers = held(store) | {"content-type": kind}
    assert client.post("/api/v1/runs", content=data, headers=headers).status_code == status


def test_packed_bodies_are_refused_unread(store, client):
    headers = held(store) | {"content-type": "application/json", "content-encoding": "gzip"}
    assert client.post("/api/v1/runs", content=b"x", headers=headers).status_code == 415


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8,
)  # fmt: skip


@settings(max_examples=150)
@given(st.data())
def test_a_run_with_any_field_replaced_is_taken_or_refused(data):
    record = json.loads(json.dumps(run_record(random_run(1, cases=1))))
    part = record
    while True:
        key = data.draw(st.sampled_from(sorted(part)) if isinstance(part, dict) else st.integers(0, len(part) - 1))
        if not (isinstance(part[key], (dict, list)) and part[key] and data.draw(st.booleans())):
            break
        part = part[key]
    part[key] = data.draw(JSON)
    with suppress(SpecError):
        assert parse_run(record).samples


def test_what_is_written_is_what_is_read():
    one = evil_run(2)
    again = parse_run(parse_json(json.dumps(run_record(one)).encode()))
    assert run_record(again) == run_record(one)


def test_pushing_a_store_gives_the_other_one_the_same_runs_once(tmp_path, other):
    with open_store(tmp_path / "mine.db", create=True) as mine:
        mine.ingest_all([random_run(number) for number in range(4)])
        mine.ingest(run(7, [samples("c", [1e-3], channels={"power_w": [100.0, 101.0]})], facts={"a": 1}))
        records = list(records_of(mine))
        wanted = contents(mine)
    with open_store(other) as store, served(other) as address:
        token = store.access.add_token("ci", "submit", days=1)
        first, second = push(records, address, token), push(records, address, token)
        assert (first.new_count, first.known_count, second.new_count, second.known_count) == (5, 0, 0, 5)
        there = contents(store)
    assert {key: there[key] for key in wanted} == wanted


def test_a_push_is_tried_again_and_given_up_in_the_end(other):
    waits = []
    with pytest.raises(MeasureError, match="not acknowledged after 6 tries"):
        push([random_run(1)], "http://127.0.0.1:9", "np_x", wait=waits.append)
    assert len(waits) == 5
    assert waits[-1] <= 20
    with open_store(other) as store, served(other) as address, pytest.raises(SpecError, match=r"refused: 40[13]"):
        push([random_run(1)], address, store.access.add_token("x", "read", days=1), wait=waits.append)
    assert len(waits) == 5, "a refusal is not tried again"


@pytest.mark.parametrize(
    "address", ["ftp://a", "http://", "http://user@127.0.0.1", "http://far.example", "x", "https://[x"]
)
def test_a_token_goes_nowhere_that_is_not_safe(address):
    with pytest.raises(SpecError):
        push([random_run(1)], address, "np_x", wait=lambda _: None)


def test_many_send_at_once_and_every_run_is_there(other):
    with open_store(other) as store, served(other) as address:
        token, before = store.access.add_token("ci", "submit", days=1), store.info()["run"]
        threads = [
            threading.Thread(target=push, args=([random_run(number + 10 * one) for number in range(8)], address, token))
            for one in range(4)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert store.info()["run"] == before + 32
