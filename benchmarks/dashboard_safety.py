"""The dashboard under attack, under load, and when it is killed: no fault, no script, nothing lost, nothing twice."""

import http.client
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks._big_store import big_store
from benchmarks._figures import Figure
from benchmarks.dashboard import BUILT, asked, served
from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.exchange.run_lines import run_record
from nearpeak.store import open_store

FIGURES = ("dashboard_fuzz", "dashboard_load", "dashboard_load_errors", "dashboard_crash")
LOOKED_AT = ("/", "/series", "/series?as=charts", "/search?q=gemm", "/runs", "/api/v1/alerts?limit=20")
"""What readers look at, beside some series and alerts."""
REQUESTS, READERS, WRITERS, LOAD_S, UPLOADS, SEED = 20_000, 50, 2, 60.0, 200, 0
PIECES = (
    "", "0", "1", "-1", "9" * 30, "1e9", "gemm", "%00", "%ff", "<script>alert(1)</script>", "'\"><img src=x onerror=a>",
    "../../etc/passwd", "{{7*7}}", "; DROP TABLE run", "a" * 400, "\u202e", "open", "csv", "json", "history", "\x00",
    "series", "NVIDIA H200", "gap", "charts", "null", "[]", "\ud83d\ude00",
)  # fmt: skip
NAMES = (
    "q",
    "page",
    "table",
    "format",
    "sort",
    "shown",
    "a",
    "b",
    "series",
    "device",
    "as",
    "owner",
    "limit",
    "offset",
)
PLACES = (
    "/", "/series", "/series/{}", "/alerts/{}", "/runs", "/runs/{}", "/compare", "/fleet", "/efficiency", "/cases",
    "/cases/{}", "/workloads/{}", "/targets/{}", "/search", "/settings", "/static/{}", "/raw/workloads/{}",
    "/raw/reports/{}", "/reports/{}", "/sign-in", "/api/v1/series", "/api/v1/series/{}", "/api/v1/series/{}/history",
    "/api/v1/runs", "/api/v1/runs/{}", "/api/v1/alerts", "/api/v1/alerts/{}", "/api/v1/openapi.json", "/{}",
)  # fmt: skip
WRITES = ("/api/v1/runs", "/api/v1/alerts/{}/actions", "/alerts/{}/actions", "/sign-in", "/sign-out")


def measure() -> Iterator[Figure]:
    """Yield faults of 20,000 hostile requests, the 99th percentile under load with its errors, runs lost or twice."""
    faults = fuzzed()
    yield Figure(name="dashboard_fuzz", value=faults, unit="faults", bar="= 0", passed=faults == 0, seed=SEED)
    spent_s, errors = loaded()
    slow_ms = 1e3 * statistics.quantiles(spent_s, n=100)[-1]
    yield Figure(name="dashboard_load", value=slow_ms, unit="ms", bar="<= 300 ms", passed=slow_ms <= 300, seed=SEED)
    yield Figure(name="dashboard_load_errors", value=errors, unit="errors", bar="= 0", passed=errors == 0, seed=SEED)
    wrong = killed()
    yield Figure(
        name="dashboard_crash", value=wrong, unit="runs lost or twice", bar="= 0", passed=wrong == 0, seed=SEED
    )


def small_run(number: int, name: str = "c") -> RunRecord:
    """Return a run of three cases."""
    bed = Testbed(name="torch_cuda")
    sets = tuple(
        SampleSet(case=f"{name}{place}", label=f"{name} {place}", metric=TIME, testbed=bed, values=(1e-3, 2e-3),
                  workload=name) for place in range(3)
    )  # fmt: skip
    return RunRecord(
        device=Device(name="NVIDIA H200", uuid="GPU-0"), samples=sets, source=Source(digest=f"{name} {number}"),
        revision=Revision(sha=f"{number:040x}", repository="synthetic", position=number),
        stack=(("cuda", "12.8"),), started_ns=number,
    )  # fmt: skip


def fuzzed() -> int:
    """Return how many hostile requests were answered by a fault, a stored script, or a write without a token."""
    from starlette.testclient import TestClient

    from nearpeak.web.server import application

    draw, faults = random.Random(SEED), 0
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "fuzz.db", create=True) as store:
        store.ingest_all([small_run(number, piece) for number, piece in enumerate(PIECES[9:14])])
        store.findings.open_alert(PIECES[9], {}, rev_lo=PIECES[10])
        token = store.access.add_token("fuzz", "submit", days=1)
        read = store.access.add_token("reader", "read", days=1)
        client = TestClient(
            application(store), base_url="http://localhost", raise_server_exceptions=False, follow_redirects=False
        )
        for number in range(REQUESTS):
            if number % 3:
                answer = client.get(hostile_place(draw))
                faults += _is_fault(answer.status_code, answer.text, answer.headers.get("content-type", ""))
            else:
                held = draw.choice(("", read, token))
                before = () if held == token else store.browsing.mark()
                answer = _write(client, draw, held)
                after = () if held == token else store.browsing.mark()
                faults += answer.status_code >= 500 or before != after
    return faults


def hostile_place(draw: random.Random) -> str:
    """Return the address of a page or of the interface, with hostile values in it."""
    piece = urllib.parse.quote(draw.choice(PIECES), safe="%" if draw.random() < 0.3 else "", errors="replace")
    path = draw.choice(PLACES).format(piece)
    query = "&".join(
        f"{draw.choice(NAMES)}={urllib.parse.quote(draw.choice(PIECES), safe='%', errors='replace')}"
        for _ in range(draw.randrange(4))
    )
    return f"{path}?{query}" if query else path


def _is_fault(status: int, text: str, kind: str) -> bool:
    script = kind.startswith("text/html") and any(piece in text for piece in (PIECES[9], PIECES[10], "<img src=x"))
    return status >= 500 or script


def _write(client: object, draw: random.Random, token: str) -> object:
    path = draw.choice(WRITES).format(draw.choice(("1", "2", "x", "-1")))
    headers = {"content-type": draw.choice(("application/json", "application/x-www-form-urlencoded", "text/plain"))}
    if token:
        headers |= (
            {"authorization": f"Bearer {token}"} if draw.random() < 0.7 else {"cookie": f"nearpeak_token={token}"}
        )
    return client.post(path, content=broken_body(draw), headers=headers)  # type: ignore[attr-defined]


def broken_body(draw: random.Random) -> bytes:
    """Return a body that is wrong somewhere: a run with a field replaced, cut short, or nothing like one."""
    kind = draw.randrange(5)
    if kind == 0:
        return draw.choice((b"", b"[" * 5000, b"\xff", b"null", b"action=expected&mark=", b'{"runs":' * 400))
    if kind == 1:
        action = {"action": draw.choice(("acknowledge", "expected", "x", None)), "note": draw.choice(PIECES)}
        return json.dumps(action | {"days": draw.choice((1, -1, 10**30, "x"))}).encode("utf-8", "replace")
    record = json.loads(json.dumps(run_record(small_run(draw.randrange(10**6), "fuzz"))))
    part = record
    while kind > 2:
        key = draw.choice(sorted(part)) if isinstance(part, dict) else draw.randrange(len(part))
        if not (isinstance(part[key], (dict, list)) and part[key] and draw.random() < 0.7):
            part[key] = draw.choice((*PIECES, None, -1, 10**40, 1.5, [], {}, [[]], True))
            break
        part = part[key]
    data = json.dumps({"runs": [record]}).encode()
    return data[: draw.randrange(len(data))] if kind == 2 and draw.random() < 0.3 else data


def loaded() -> tuple[list[float], int]:
    """Return the times of all requests of 50 readers and 2 writers in 60 s, and how many failed.

    Each reader looks at a page for one to three seconds before the next one, each writer sends a run every half second;
    they come within the first three seconds, not all at one instant.
    """
    spent_s: list[float] = []
    errors: list[str] = []
    BUILT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT.parent) as folder:
        place = Path(shutil.copy(big_store(BUILT), Path(folder) / "load.db"))
        with open_store(place) as store:
            token = store.access.add_token("load", "submit", days=1)
        with served(place) as (address, _):
            for path in (*LOOKED_AT, "/series/1", "/alerts/1"):  # what a server does once is not what people wait for
                asked(address + path)
            stop_s = time.monotonic() + LOAD_S
            whos = [(_reader, number) for number in range(READERS)] + [(_writer, number) for number in range(WRITERS)]
            threads = [
                threading.Thread(target=do, args=(address, token, number, stop_s, spent_s, errors))
                for do, number in whos
            ]  # fmt: skip
            for one in threads:
                one.start()
            for one in threads:
                one.join()
    return spent_s, len(errors)


def _reader(address: str, _: str, number: int, stop_s: float, spent_s: list[float], errors: list[str]) -> None:
    draw = random.Random(number)
    time.sleep(draw.uniform(0.0, 3.0))
    while time.monotonic() < stop_s:
        path = draw.choice((*LOOKED_AT, f"/series/{draw.randrange(1, 2000)}", f"/alerts/{draw.randrange(1, 5000)}"))
        _timed(urllib.request.Request(address + path), spent_s, errors)
        time.sleep(draw.uniform(1.0, 3.0))


def _writer(address: str, token: str, number: int, stop_s: float, spent_s: list[float], errors: list[str]) -> None:
    count = 0
    while time.monotonic() < stop_s:
        count += 1
        body = json.dumps({"runs": [run_record(small_run(1000 + count, f"writer {number}"))]}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        _timed(urllib.request.Request(f"{address}/api/v1/runs", data=body, headers=headers), spent_s, errors)
        time.sleep(0.5)


def _timed(request: urllib.request.Request, spent_s: list[float], errors: list[str]) -> None:
    start_s = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
    except (OSError, http.client.HTTPException) as error:
        errors.append(str(error))
    spent_s.append(time.perf_counter() - start_s)


def killed() -> int:
    """Return how many acknowledged runs of 200 are not there once, when the server is killed again and again."""
    draw, acknowledged, number = random.Random(SEED), [], 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "crash.db"
        with open_store(place, create=True) as store:
            token = store.access.add_token("crash", "submit", days=1)
        while number < UPLOADS:
            with served(place) as (address, process):
                threading.Timer(draw.uniform(0.1, 1.0), process.kill).start()
                while number < UPLOADS and (uid := _upload(address, token, number)):
                    acknowledged.append(uid)
                    number += 1
        with served(place) as (address, _):  # all once more: what is there stays, what was lost comes
            missing = [number for number in range(UPLOADS) if not _upload(address, token, number)]
        with open_store(place) as store:
            there = [one.uid for one in store.runs()]
    return len(missing) + sum(there.count(uid) != 1 for uid in acknowledged) + abs(len(there) - UPLOADS)


def _upload(address: str, token: str, number: int) -> str:
    """Send a run; return its identity where it was acknowledged."""
    body = json.dumps({"runs": [run_record(small_run(number))]}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(f"{address}/api/v1/runs", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(json.loads(answer.read())["runs"][0]["uid"])
    except (OSError, http.client.HTTPException, ValueError):
        return ""
