"""Another user of this machine reaches no listener of the farm, and reads and changes none of its files."""

import encodings.idna  # noqa: F401  # sockets look names up by it, and another user may not read it
import os
import socket
import ssl
import sys
import time

import psutil
import pytest
from tests.other_user import as_other_user, open_to_all

from nearpeak.farm.jobs import Device

hosts = pytest.importorskip("nearpeak.farm.dask_hosts")
pytest.importorskip("distributed", reason="Dask is not installed (extra farm)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra farm)")
TLS_ALERT = b"\x15\x03"
"""How an answer begins that refuses a handshake."""


def listeners():
    return {one.laddr.port for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN}


def reached(port):
    """What a listener of loopback says to a plain client, and to one that encrypts without a certificate."""
    answers = []
    for is_encrypted in (False, True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.socket() as plain:
            plain.settimeout(5)
            try:
                plain.connect(("127.0.0.1", port))
                talk = context.wrap_socket(plain) if is_encrypted else plain
                talk.sendall(b"\x00" * 64)
                answers.append(talk.recv(64))
                talk.close()
            except OSError:
                answers.append(b"")
    return [answer.decode("latin-1") for answer in answers]


@pytest.fixture
def farm(tmp_path, monkeypatch):
    """A scheduler and a worker on loopback; yields their ports."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    from nearpeak.farm.executors.dask import Dask

    before, safe = listeners(), hosts.security_of(None, "127.0.0.1:0")
    mine = [Device(name="fake-1", host="node")]
    with hosts.scheduler("127.0.0.1:0", safe) as scheduler, hosts.workers(scheduler.address, safe, mine):
        client = Dask(scheduler.address)
        while not client.devices():
            time.sleep(0.05)
        yield sorted(listeners() - before)
        client.close()


def test_no_listener_of_the_farm_answers_another_user(farm):
    assert len(farm) == 2, "one of the scheduler, one of the worker; none for pages"
    for answers in [as_other_user(lambda port=port: reached(port)) for port in farm]:
        assert all(not answer or answer.encode("latin-1").startswith(TLS_ALERT) for answer in answers)


def test_no_file_of_the_farm_is_read_or_changed_by_another_user(farm, tmp_path):
    open_to_all(tmp_path)
    private = [tmp_path / "data" / "nearpeak" / "farm-loopback", *(tmp_path / "tmp").glob("nearpeak-dask-*")]
    assert len(private) == 3, "certificates, and the scratch folders of scheduler and worker"
    for path in map(str, private):
        assert as_other_user(lambda path=path: os.listdir(path)) == "PermissionError"
        assert as_other_user(lambda path=path: os.mkdir(f"{path}/x")) == "PermissionError"
    imported_from = [path for path in sys.path if "dask-scratch-space" in path]
    assert imported_from
    assert all(path.startswith(str(tmp_path)) for path in imported_from)
