"""The dashboard among hostile clients: malformed requests, and slow and half-open connections, while others read."""

import http.client
import itertools
import random
import re
import socket
import statistics
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import psutil

from benchmarks._figures import Figure
from benchmarks.dashboard import asked, served
from benchmarks.dashboard_safety import LOOKED_AT, PIECES, WRITES, broken_body, hostile_place, small_run
from nearpeak.history.demo_store import filled
from nearpeak.store import open_store

FIGURES = (
    "hostile_web_requests", "hostile_web_faults", "hostile_web_slowest_reader", "hostile_web_slow_clients",
    "hostile_web_memory",
)  # fmt: skip
REQUESTS, SLOW_CLIENTS, READERS, SENDERS, SEED = 20_000, 600, 4, 12, 0
READ_EVERY_S, LATE_S = 0.25, 1.0
_SERVER_ERROR = re.compile(rb"HTTP/1\.1 (5[0-9][0-9]) ")
_METHODS = (
    "GET",
    "GET",
    "GET",
    "HEAD",
    "POST",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G\tT",
    "",
)
_TARGETS = ("*", "http://evil.example/", "//evil.example/..", "/" + "a" * 70_000, "/%", "a b", "/\xff")
_VERSIONS = ("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1 x", "")
_HOSTS = ("evil.example", "localhost:1", "", "a" * 300, "[::1]", "\x00", "é")
_HEADERS = (
    "transfer-encoding: chunked", "transfer-encoding: gzip, chunked", "content-length: -1", "content-length: 5",
    "content-length: 99999999999999999999", "content-length: 0\r\ncontent-length: 7", "expect: 100-continue",
    "connection: close, upgrade\r\nupgrade: websocket", "upgrade: h2c", "range: bytes=0-4000000000", "x: " + "b" * 9000,
    "cookie: nearpeak_token=\"\\000\"; =; a", "authorization: Basic Og==", "authorization: Bearer", "accept: \xff",
    "origin: null", "sec-fetch-site: cross-site", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: \r\n folded",
    "content-encoding: gzip", "no colon", ": empty", "if-none-match: *", "accept: application/json", "te: trailers",
)  # fmt: skip
_KINDS = ("application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "")


@dataclass(slots=True)
class Outcome:
    """What became of hostile requests."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Answers by status; `none` where there was none."""
    faults: list[str] = field(default_factory=list)
    """Answers that must not be, with what asked for them."""


def measure() -> Iterator[Figure]:
    """Yield requests, faults, the slowest reader's time, slow clients and the server's largest memory."""
    with tempfile.TemporaryDirectory() as folder:
        place, log = Path(folder) / "attacked.db", Path(folder) / "log"
        tokens = made_store(place)
        with log.open("w") as errors, served(place, errors=errors) as (address, process):
            for path in (*LOOKED_AT, "/series/1", "/efficiency"):  # what a server does once is not what people wait for
                asked(address + path)
            outcome, reads_s, failed, memory_bytes = campaign(address, place, tokens, process.pid)
        faults = [*outcome.faults, *failed, *log.read_text().splitlines()]
    for fault in faults[:20]:
        print(fault[:300])
    print(dict(outcome.statuses))
    slowest_s, count = max(reads_s), outcome.statuses.total()
    median_s, late_s = statistics.median(reads_s), statistics.quantiles(reads_s, n=100)[-1]
    print(f"{len(reads_s)} reads, median {median_s:.3f} s, 99th percentile {late_s:.3f} s")
    yield Figure(name="hostile_web_requests", value=count, unit="requests", bar="", passed=count >= REQUESTS, seed=SEED)
    yield Figure(name="hostile_web_faults", value=len(faults), unit="faults", bar="= 0", passed=not faults, seed=SEED)
    yield Figure(name="hostile_web_slowest_reader", value=slowest_s, unit="s", bar="<= 1 s", passed=slowest_s <= LATE_S,
                 seed=SEED)  # fmt: skip
    yield Figure(name="hostile_web_slow_clients", value=SLOW_CLIENTS, unit="clients", bar="", passed=True, seed=SEED)
    yield Figure(name="hostile_web_memory", value=memory_bytes / 2**20, unit="MiB", bar="<= 1,024 MiB",
                 passed=memory_bytes <= 2**30, seed=SEED)  # fmt: skip


def made_store(place: Path) -> dict[str, str]:
    """Make a store with a history and hostile names; return a token of each scope."""
    with open_store(place, create=True) as store:
        filled(store, commits=60)
        store.ingest_all([small_run(number, piece) for number, piece in enumerate(PIECES[9:14])])
        store.findings.open_alert(PIECES[9], {}, rev_lo=PIECES[10])
        return {scope: store.access.add_token(f"hostile {scope}", scope, days=1) for scope in ("read", "submit")}


def campaign(
    address: str, place: Path, tokens: dict[str, str], pid: int
) -> tuple[Outcome, list[float], list[str], int]:
    """Return what became of all requests, the times of readers, their failures, and the largest memory of the server.

    Readers and slow clients are processes of their own, so that they do not wait for the hostile client.
    """
    outcome, most_bytes = Outcome(), 0
    spawn = get_context("spawn")
    with ProcessPoolExecutor(READERS + 1, mp_context=spawn) as pool, tempfile.TemporaryDirectory() as folder:
        running = Path(folder) / "running"
        running.touch()
        slow = pool.submit(hold_open, address, SLOW_CLIENTS, str(running))
        readers = [pool.submit(read_pages, address, number, str(running)) for number in range(READERS)]
        time.sleep(5.0)  # until all are there
        with open_store(place) as store:
            before = store.browsing.mark()
            for phase, known in enumerate((("", "np_wrong", tokens["read"]), tuple(tokens.values()))):
                most_bytes = max(most_bytes, attack_together(address, phase, known, outcome, pid))
                if phase == 0 and store.browsing.mark() != before:
                    outcome.faults.append("something was written without a token that may")
        running.unlink()
        parts = [reader.result() for reader in readers]
        print(f"slow clients opened {slow.result()} connections")
    failed = [fault for _, faults in parts for fault in faults]
    return outcome, [spent_s for times_s, _ in parts for spent_s in times_s], failed, most_bytes


def attack_together(address: str, phase: int, tokens: Sequence[str], outcome: Outcome, pid: int) -> int:
    """Send half of all requests on several threads; return the largest memory of the server meanwhile."""
    server, most_bytes, count = psutil.Process(pid), 0, REQUESTS // 2 // SENDERS + 1
    drawn = [hostile_requests(seed, count, tokens) for seed in range(phase * SENDERS, (phase + 1) * SENDERS)]
    threads = [threading.Thread(target=attack, args=(address, requests, outcome)) for requests in drawn]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most_bytes = max(most_bytes, server.memory_info().rss)
        time.sleep(0.5)
    return most_bytes


def hostile_requests(seed: int, count: int, tokens: Sequence[str]) -> Iterator[bytes]:
    """Yield requests as bytes: some well-formed with hostile values, others malformed anywhere."""
    draw = random.Random(seed)
    for number in range(count):
        request = _request(draw, tokens)
        if number % 7 == 0:  # pipelined
            request += _request(draw, tokens)
        if number % 10 == 0:
            place = draw.randrange(len(request) + 1)
            request = request[:place] + draw.randbytes(draw.randrange(4)) + request[place + draw.randrange(3) :]
        yield request


def _request(draw: random.Random, tokens: Sequence[str]) -> bytes:
    """Return a request with hostile values in its address and body, and half the time a malformed part."""
    is_write, broken = draw.random() < 0.4, draw.choice(("", "", "", "method", "version", "host", "target", "header"))
    method = draw.choice(_METHODS) if broken == "method" else "POST" if is_write else "GET"
    place = draw.choice(WRITES).format(draw.choice(("1", "2", "x", "-1"))) if is_write else hostile_place(draw)
    target = draw.choice(_TARGETS) if broken == "target" else place
    version = draw.choice(_VERSIONS) if broken == "version" else "HTTP/1.1"
    body = broken_body(draw) if is_write else b""
    lines = [f"host: {draw.choice(_HOSTS) if broken == 'host' else 'localhost'}"]
    if is_write:
        lines += [f"content-type: {draw.choice(_KINDS)}", f"content-length: {len(body)}"]
    if token := draw.choice(tokens):
        lines.append(draw.choice((f"authorization: Bearer {token}", f"cookie: nearpeak_token={token}")))
    lines += draw.sample(_HEADERS, draw.choice((1, 2))) if broken == "header" else []
    head = "\r\n".join((f"{method} {target} {version}".strip(), *lines))
    return head.encode("latin-1", "replace") + b"\r\n\r\n" + body


def attack(address: str, requests: Iterator[bytes], outcome: Outcome) -> None:
    """Send each request on a connection of its own: whole, in parts, half-closed, or without waiting for an answer."""
    parts = urllib.parse.urlsplit(address)
    for number, request in enumerate(requests):
        answer = b""
        with suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 0), timeout=3) as client:
            answer = _sent(client, request, number)
        outcome.statuses[answer[9:12].decode("latin-1") or "none"] += 1
        for error in _SERVER_ERROR.finditer(answer):
            head = answer[error.start() :].partition(b"\r\n\r\n")[0].lower()
            if error[1] != b"503" or b"retry-after" not in head:
                outcome.faults.append(f"{error[0]!r} to {request[:200]!r}")
        for part in answer.split(b"HTTP/1.1 "):
            is_page = b"content-type: text/html" in part
            if is_page and any(piece.encode() in part for piece in (PIECES[9], PIECES[10], "<img src=x")):
                outcome.faults.append(f"a script in the answer to {request[:200]!r}")


def _sent(client: socket.socket, request: bytes, number: int) -> bytes:
    if number % 4 == 1:
        client.sendall(request[: len(request) // 2])
        time.sleep(0.01)
        client.sendall(request[len(request) // 2 :])
    else:
        client.sendall(request)
    if number % 11 == 0:
        return b""  # gone at once
    if number % 3 == 0:
        client.shutdown(socket.SHUT_WR)
    client.settimeout(0.3)  # a request that is not whole is not answered
    answer = b""
    with suppress(OSError):
        while part := client.recv(1 << 16):
            answer += part
            client.settimeout(0.02)
    return answer


_FORM = b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 9000"
_PARTIAL = (
    b"",
    b"GET",
    b"GET / HTTP/1.1\r\nhost: local",
    b"POST /sign-in HTTP/1.1\r\nhost: localhost\r\n" + _FORM + b"\r\n\r\ntoken=",
    b"GET /series?table=series&format=json HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /static/app.css HTTP/1.1\r\nhost: localhost\r\n\r\nGET",
)
"""What slow clients begin with: nothing, parts of a request, and whole ones whose answers are not read."""


def hold_open(address: str, count: int, running: str) -> int:
    """Keep slow and half-closed connections open until a file is gone; return how many were made in all."""
    parts, clients, made = urllib.parse.urlsplit(address), list[socket.socket | None]([None] * count), 0
    while Path(running).exists():
        for number in range(count):
            try:
                if clients[number] is None:
                    clients[number] = _slow_client((parts.hostname or "", parts.port or 0), number)
                    made += 1
                elif number % 3 == 0:
                    clients[number].send(b"a")  # type: ignore[union-attr]
                elif number % 6 in (1, 2) and not clients[number].recv(1):  # type: ignore[union-attr]
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                if clients[number] is not None:
                    clients[number].close()  # type: ignore[union-attr]
                clients[number] = None
        time.sleep(0.5)
    for client in filter(None, clients):
        client.close()
    return made


def _slow_client(place: tuple[str, int], number: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(5)
    client.connect(place)
    client.sendall(_PARTIAL[number % len(_PARTIAL)])
    if number % 5 == 0:
        client.shutdown(socket.SHUT_WR)
    client.setblocking(False)
    return client


def read_pages(address: str, seed: int, running: str) -> tuple[list[float], list[str]]:
    """Read pages until a file is gone; return how long each took, and what failed."""
    draw, spent_s, failed = random.Random(seed), list[float](), list[str]()
    place = urllib.parse.urlsplit(address)
    for path in itertools.chain(iter(lambda: draw.choice((*LOOKED_AT, f"/series/{draw.randrange(1, 12)}")), None)):
        if not Path(running).exists():
            return spent_s, failed
        start_s = time.perf_counter()
        try:
            client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
            client.request("GET", path)
            answer = client.getresponse()
            answer.read()
            client.close()
            if answer.status != 200:
                failed.append(f"reader: {path}: {answer.status}")
        except (OSError, http.client.HTTPException) as error:
            failed.append(f"reader: {path}: {type(error).__name__}: {error}")
        spent_s.append(time.perf_counter() - start_s)
        time.sleep(READ_EVERY_S)
    return spent_s, failed
