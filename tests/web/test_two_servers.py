"""Two servers on one store: both work, what one writes the other shows, and a port belongs to one of them."""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import HERE, served

from nearpeak.history.alert_triage import act
from nearpeak.store import open_store
from nearpeak.web.server import application
from nearpeak.web.site import OLDEST_S, REMEMBERED_S, SHARED_S


def read(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def test_what_is_done_through_one_server_shows_in_the_other(copied):
    with served(copied) as first, open_store(copied) as store:
        other = TestClient(application(store, run_token="np_run"), base_url=HERE)
        bearer = {"authorization": "Bearer np_run"}
        for address in (f"{first}/", f"{first}/alerts/2"):
            assert "acknowledged</span>" not in read(address)
        done = other.post("/api/v1/alerts/2/actions", json={"action": "acknowledge"}, headers=bearer)
        assert done.status_code == 200
        time.sleep(SHARED_S)
        for address in (f"{first}/", f"{first}/alerts/2"):
            assert "acknowledged</span>" in read(address)


def test_whoever_is_signed_in_sees_it_at_once_and_others_within_seconds(copied):
    with open_store(copied) as one, open_store(copied) as other:
        client = TestClient(application(one, run_token="np_run"), base_url=HERE)
        client.post("/sign-in", data={"token": "np_run"})
        for action, shown in (("acknowledge", "acknowledged"), ("fixing", "fixing")):
            client.get("/")
            act(other, 1, action, actor="elsewhere")
            assert f"s-{shown}" in client.get("/").text, "what others are shown may be SHARED_S old, not this"
    assert SHARED_S <= 2.0 < REMEMBERED_S < OLDEST_S <= 60.0, "the documents state these"


@pytest.mark.parametrize("busy_host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_another_server_has_is_refused_in_one_line(made_up, busy_host):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((busy_host, 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "nearpeak", "serve", "--store", str(made_up), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port} cannot be listened on" in done.stderr
    assert "--port 0" in done.stderr
