"""Stores to look at, the dashboard over them as a server, and the browser of the distribution."""

import shutil
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from nearpeak.core.history.stored_run import TIME, Device, Metric, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.history.demo_store import filled
from nearpeak.history.regression_groups import regressed, save_regressions
from nearpeak.history.series_tracks import track_of
from nearpeak.store import open_store

HERE = "http://localhost"
"""Where a client without a server finds the application."""
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
EVIL = (
    "<script>window.stolen=1</script>", '"><img src=x onerror="window.stolen=1">', "</script><script>stolen=1//",
    "../../../etc/passwd", "{{ 7 * 7 }}", "'; DROP TABLE run; --", "=cmd|' /C calc'!A0", "\u202egnp.exe",
    "void f<T, N>()",
)  # fmt: skip
"""Names that others may have chosen."""


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """The place of a store with a made-up history of 60 commits, its regressions searched; writers copy it."""
    place = tmp_path_factory.mktemp("web") / "made_up.db"
    with open_store(place, create=True) as store:
        filled(store, commits=60)
        tracks = [track_of(store, one.id) for one in store.series()]
        save_regressions(store, tracks, regressed(tracks))
    return place


@pytest.fixture
def copied(made_up, tmp_path):
    """A copy of that store, to write to."""
    with open_store(made_up):
        return shutil.copy(made_up, tmp_path / "copy.db")


def evil_run(number):
    """A run in which every text is hostile."""
    bed, name = Testbed(name=EVIL[0], policy={EVIL[1]: EVIL[2]}), EVIL[number % len(EVIL)]
    sets = tuple(
        SampleSet(
            case=f"{name}{place}", label=f"{one} {place}", workload=one, testbed=bed, note=one,
            values=(1e-3, 2e-3 + number),
            metric=TIME if place else Metric(name=EVIL[1], unit="<b>s", kind="other"), parameters={one: one},
        ) for place, one in enumerate(EVIL)
    )  # fmt: skip
    return RunRecord(
        device=Device(name=EVIL[0], vendor=EVIL[1], uuid=EVIL[2], host=EVIL[3], settings=((EVIL[0], EVIL[1]),)),
        samples=sets, source=Source(digest=f"{name}{number}", name=EVIL[1]), branch=EVIL[0],
        revision=Revision(sha=f"{EVIL[0]}{number}", repository="r", position=number, subject=EVIL[1], author=EVIL[0]),
        stack=((EVIL[0], EVIL[1]),), facts={EVIL[0]: EVIL[1]}, started_ns=number,
    )  # fmt: skip


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """The place of a store in which every text is hostile, with an alert."""
    place = tmp_path_factory.mktemp("web") / "hostile.db"
    with open_store(place, create=True) as store:
        for number in range(14):
            store.ingest(evil_run(number))
        tracks = [track_of(store, one.id) for one in store.series()]
        save_regressions(store, tracks, regressed(tracks, suspects=True))
        alert = store.findings.open_alert(EVIL[0], {}, rev_lo=EVIL[1], rev_hi=EVIL[2], note=EVIL[0])
        store.findings.assign_alert(alert, actor=EVIL[0], assignee=EVIL[1], tracker_url="javascript:alert(1)")
    return place


@contextmanager
def served(place, **options):
    """Serve a store on a free port of this machine; yields the address."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra web)")
    from nearpeak.web.http_connection import server_of
    from nearpeak.web.server import application

    with open_store(place) as store, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = server_of(application(store, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="session")
def address(made_up):
    """Where the made-up history is served, for reading."""
    with served(made_up) as found:
        yield found


@pytest.fixture(scope="session")
def browser():
    """The browser of the distribution."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser found; any of {', '.join(BROWSERS)} will do")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    with sync.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        found = playwright.chromium.launch(executable_path=path, args=flags)
        yield found
        found.close()


class Watched:
    """A page of the browser that remembers what it complained about and what it asked for from elsewhere."""

    def __init__(self, context):
        self.page, self.faults = context.new_page(), []
        self.page.on("console", lambda one: self.faults.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        context.on("request", self._asked)

    def _asked(self, request):
        if not request.url.startswith(("http://127.0.0.1:", "file://", "data:", "about:")):
            self.faults.append(f"asks {request.url}")

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_function("window.nearpeakCharts !== undefined")
        return self.page


@pytest.fixture
def watched(browser):
    """A watched page; that it complained about nothing is checked at the end."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="light")
    found = Watched(context)
    yield found
    assert found.faults == []
    context.close()
