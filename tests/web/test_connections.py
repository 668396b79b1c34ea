"""Connections of the dashboard: slow and half-open clients hold nobody up, other users of the host see nothing."""

import io
import logging
import os
import socket
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra web)")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra web)")
pytest.importorskip("httpx", reason="httpx is not installed (extra dev)")
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tests.other_user import as_other_user, open_to_all
from tests.web.conftest import HERE, served

from nearpeak.base.peer_user import knows_users
from nearpeak.cli.team.serve import serve
from nearpeak.errors import SpecError, StoreError
from nearpeak.store import open_store, store_check
from nearpeak.web import http_connection, request_queues
from nearpeak.web.server import application

GET = b"GET /static/app.css HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextmanager
def client_of(address):
    """A connection to a server."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as client:
        client.settimeout(20)
        client.connect((host, int(port)))
        yield client


def answer(client, sent=b""):
    """What a server says until it closes."""
    if sent:
        client.sendall(sent)
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture
def log():
    """What is logged meanwhile."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    for name in ("", "uvicorn.error", "asyncio", "nearpeak.web"):
        logging.getLogger(name).addHandler(handler)
    yield text
    for name in ("", "uvicorn.error", "asyncio", "nearpeak.web"):
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize(("sent", "status"), [
    (b"", b""), (b"GET / HTTP/1.1\r\nhost: local", b"HTTP/1.1 408"),
    (b"POST /sign-in HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60\r\n"
     b"content-type: application/x-www-form-urlencoded\r\n\r\ntoken=", b"HTTP/1.1 408"),
])  # fmt: skip
def test_a_request_that_does_not_arrive_in_time_is_given_up(made_up, monkeypatch, log, sent, status):
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)
    with served(made_up) as address, client_of(address) as client:
        assert answer(client, sent)[:12] == status
        with client_of(address) as other:
            assert b" 200 " in answer(other, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))[:20]
    assert log.getvalue() == ""


def test_silent_connections_make_room_for_new_ones(made_up, monkeypatch):
    monkeypatch.setattr(http_connection, "OPEN_COUNT", 5)
    monkeypatch.setattr(http_connection, "RUSH_S", 0.0)
    with served(made_up) as address:
        clients = [client_of(address) for _ in range(12)]
        opened = [client.__enter__() for client in clients]
        with client_of(address) as reader:
            assert b" 200 " in answer(reader, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))[:20]
        assert answer(opened[0]).startswith(b"HTTP/1.1 503")
        for client in clients:
            client.__exit__(None, None, None)


@pytest.mark.parametrize("sent", [
    b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\nhost: a\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01",
    b"POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"POST /sign-in HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n"
    b"content-type: application/x-www-form-urlencoded\r\n\r\nx",
])  # fmt: skip
def test_what_clients_do_wrong_is_counted_and_not_logged(made_up, log, sent):
    with served(made_up) as address:
        with client_of(address) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert b"500" not in answer(client)[:20]
        time.sleep(0.1)
    assert log.getvalue() == ""


def test_a_header_authorization_alone_counts_where_it_is_present(made_up, tmp_path):
    with open_store(tmp_path / "empty.db", create=True) as store:
        cookies = {"nearpeak_token": "np_run"}
        client = TestClient(application(store, run_token="np_run", is_private=True), base_url=HERE, cookies=cookies)
        assert client.get("/api/v1/info").status_code == 200
        for header in ("Basic x", "", "Bearer", "Bearer np_wrong"):
            assert client.get("/api/v1/info", headers={"authorization": header}).status_code == 401, header
            sent = client.post("/api/v1/runs", json={"runs": []}, headers={"authorization": header})
            assert sent.status_code == 401, header


def test_every_answer_has_the_security_headers(made_up):
    with open_store(made_up) as store:
        client = TestClient(application(store, is_private=True), base_url=HERE, follow_redirects=False)
        answers = [
            client.get("/"), client.get("/series/"), client.get("/none"), client.put("/series"), client.get("/metrics"),
            client.get("/sign-in"), client.post("/sign-out"), client.post("/api/v1/runs"), client.get("/favicon.ico"),
            client.get("/", headers={"host": "evil.example"}), client.get("//evil.example/"),
        ]  # fmt: skip
    assert {303, 401, 404, 405, 421} <= {one.status_code for one in answers}
    for one in answers:
        assert "content-security-policy" in one.headers, one.url
        assert one.headers["x-content-type-options"] == "nosniff"
        assert not one.headers.get("location", "").startswith(("http", "//")), one.url


def test_a_body_may_be_as_large_as_its_endpoint_needs(made_up, tmp_path):
    with open_store(tmp_path / "empty.db", create=True) as store:
        client = TestClient(application(store, run_token="np_run"), base_url=HERE)
        bearer = {"authorization": "Bearer np_run", "content-type": "application/json"}
        assert client.post("/api/v1/alerts/1/actions", content=b" " * 70_000, headers=bearer).status_code == 413
        assert client.post("/api/v1/runs", content=b" " * 70_000, headers=bearer).status_code == 400
        assert client.post("/sign-in", content=b"a" * 70_000).status_code in (413, 415)


def test_more_requests_than_can_wait_are_sent_away_for_a_second(made_up, monkeypatch):
    monkeypatch.setitem(request_queues._AT_ONCE, request_queues.READS, 0)
    monkeypatch.setitem(request_queues._WAITING, request_queues.READS, 0)
    with open_store(made_up) as store:
        sent_away = TestClient(application(store), base_url=HERE).get("/api/v1/info")
        monkeypatch.undo()

        def broken(*_, **__):
            raise StoreError("cannot be reached")

        monkeypatch.setattr(type(store.browsing), "runs", broken)
        away = TestClient(application(store), base_url=HERE).get("/runs")
    assert (sent_away.status_code, away.status_code) == (503, 503)
    assert int(sent_away.headers["retry-after"]) > 0
    assert int(away.headers["retry-after"]) > 0


def test_metrics_are_what_prometheus_reads(made_up):
    with open_store(made_up) as store:
        client = TestClient(application(store), base_url=HERE)
        client.get("/static/app.css")
        client.get("/none")
        given = client.get("/metrics")
        runs = store.info()["run"]
    assert given.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {(one.name, *one.labels.values()): one.value
               for family in text_string_to_metric_families(given.text) for one in family.samples}  # fmt: skip
    assert samples["nearpeak_store_rows", "run"] == runs
    assert samples["nearpeak_request_duration_seconds_count", "404"] == 1
    assert samples["nearpeak_connections_closed_total", "late"] == 0
    assert samples["nearpeak_series_left_out",] == 0
    times = {key[1:]: value for key, value in samples.items() if key[0] == "nearpeak_time_seconds"}
    reached = {key[1:]: value for key, value in samples.items() if key[0] == "nearpeak_attained_ratio"}
    assert len(times) >= len(reached) > 0
    assert all(0 < value <= 1 for value in reached.values())
    assert {"nearpeak_alerts", "nearpeak_farm_jobs", "nearpeak_farm_queued_seconds"} <= {name for name, *_ in samples}


def test_another_user_of_the_host_reads_nothing(made_up):
    if not knows_users():
        pytest.skip("this system does not say who holds the other end of a connection")
    sent = b"GET /api/v1/info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

    def read():
        with client_of(address) as client:
            return answer(client, sent).decode("latin-1")[:20]

    with served(made_up, own_uid=os.geteuid()) as address:
        assert read().startswith("HTTP/1.1 200")
        assert as_other_user(read).startswith("HTTP/1.1 401")
    with served(made_up) as address:
        assert as_other_user(read).startswith("HTTP/1.1 200"), "where it is served to all"


def test_another_user_reads_no_store_that_was_made_here(tmp_path, monkeypatch):
    place, make = tmp_path / "mine.db", store_check.make_at

    def watched(part):
        open_to_all(tmp_path)
        assert as_other_user(lambda: os.close(os.open(part, os.O_RDONLY))) == "PermissionError", "while it is made, too"
        make(part)

    monkeypatch.setattr(store_check, "make_at", watched)
    before = os.umask(0)
    try:
        with open_store(place, create=True) as store:
            store.access.add_token("ci", "read", days=1)
            open_to_all(tmp_path)
            files = [str(path) for path in tmp_path.iterdir()]
            for path in files:
                assert as_other_user(lambda path=path: os.close(os.open(path, os.O_RDONLY))) == "PermissionError", path
    finally:
        os.umask(before)


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_no_log_that_another_user_put_beside_a_store_is_played_back_into_it(tmp_path, suffix):
    place = tmp_path / "mine.db"
    open_store(place, create=True).close()
    open_to_all(tmp_path)
    log = f"{place}{suffix}"
    as_other_user(lambda: os.close(os.open(log, os.O_CREAT | os.O_WRONLY)))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "theirs.db").symlink_to(place)
    for name in (place, tmp_path / "links" / "theirs.db"):
        with pytest.raises(StoreError, match=f"mine.db{suffix}: another user made it"):
            open_store(name)
    place.chmod(0o666)
    open_store(place).close()  # shared with all on purpose


@pytest.fixture
def command(made_up, monkeypatch):
    """A function that runs `nearpeak serve` without serving; returns the options of the site."""
    settings = []

    class Server:
        def run(self, sockets):
            assert len(sockets) == 1

    def made(*arguments, **options):
        settings.append(options)
        return application(*arguments, **{**options, "is_warm": False})

    monkeypatch.setattr("nearpeak.web.server.application", made)
    monkeypatch.setattr(http_connection, "server_of", lambda _: Server())
    monkeypatch.setattr(http_connection, "prepare_process", lambda: None)
    usual = {"host": "127.0.0.1", "private": False, "public": False}

    def run(**options):
        serve(store=str(made_up), port=0, reports=None, write=False, repository=None, **{**usual, **options})
        return settings[-1]

    return run


def test_who_reads_without_a_token_follows_the_options(command, monkeypatch, capsys):
    site = command()
    assert (site["own_uid"], site["is_private"], site["run_token"]) == (os.geteuid(), False, "")
    for options, private in (({"public": True}, False), ({"private": True}, True), ({"host": "0.0.0.0"}, False)):
        site = command(**options)
        assert (site["own_uid"], site["is_private"]) == (None, private), options
    monkeypatch.setattr("nearpeak.base.peer_user.knows_users", lambda: False)
    site = command()
    assert (site["own_uid"], site["is_private"], site["run_scope"]) == (None, True, "read")
    assert f"/sign-in#{site['run_token']}\n" in capsys.readouterr().out
    with pytest.raises(SpecError, match="contradicts --public"):
        command(private=True, public=True)
