"""Every page without a browser: from an empty, a made-up and a hostile store, with sound links and exports."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra web)")
pytest.importorskip("httpx", reason="httpx is not installed (extra dev)")
from starlette.testclient import TestClient
from tests.web.conftest import HERE

from nearpeak.store import open_store
from nearpeak.web.pages import pages, paths
from nearpeak.web.server import application
from nearpeak.web.site import Setting, Site

MOST_PAGES = 150


class Page(HTMLParser):
    """What a page links to, which of its controls have names, and whether its tags close."""

    VOID = frozenset({"meta", "link", "input", "br", "hr", "img", "wbr", "path", "rect", "line"})

    def __init__(self, text):
        super().__init__()
        self.links, self.scripts, self.open, self.faults, self.labels, self.ids = [], [], [], [], set(), []
        self.controls = []
        self.feed(text)
        self.faults += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        if tag in ("a", "link", "iframe", "script"):
            self.links += [found[name] for name in ("href", "src") if found.get(name)]
        if tag == "script":
            self.scripts.append(found)
        if tag == "label":
            self.labels.add(found.get("for", "around"))
        if tag in ("input", "select") and found.get("type") != "hidden":
            named = "aria-label" in found or found.get("id") in self.labels or "label" in self.open
            self.faults += [] if named else [f"{tag} {found} has no label"]
        self.faults += [f"{tag} has {name}" for name in found if name.startswith("on") or name == "style"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")


def places_of(place):
    """Paths of every page of a store."""
    with open_store(place) as store:
        site = Site(store, Setting(paths=paths()))
        for page in pages():
            for values in page.everywhere(site):
                path = page.path
                for name, value in values.items():
                    path = path.replace(f"{{{name}}}", value)
                yield path


@pytest.fixture(scope="module", params=["empty", "made_up", "hostile"])
def place(request, tmp_path_factory):
    if request.param != "empty":
        return request.getfixturevalue(request.param)
    found = tmp_path_factory.mktemp("empty") / "empty.db"
    open_store(found, create=True).close()
    return found


@pytest.fixture(scope="module")
def read(place):
    """Pages of the store by path: some of each kind."""
    seen, kinds = {}, {}
    with open_store(place) as store:
        client = TestClient(application(store), base_url=HERE)
        for path in ["/search?q=e", "/series?as=charts", "/fleet?show=change", "/sign-in", *places_of(place)]:
            kind = re.sub(r"(?<=/)[^/]*$", "", path.partition("?")[0]) or path
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= 12 and len(seen) < MOST_PAGES:
                seen[path] = client.get(path, follow_redirects=False)
        yield client, seen


def test_every_page_answers(read):
    _, seen = read
    assert {path: (one.status_code, one.text[:300]) for path, one in seen.items() if one.status_code != 200} == {}
    assert len(seen) >= 14


def test_pages_are_sound_and_their_controls_have_labels(read):
    _, seen = read
    faults = {path: found for path, one in seen.items() if (found := Page(one.text).faults)}
    assert faults == {}
    twice = {path: page.ids for path, one in seen.items() if len(set((page := Page(one.text)).ids)) != len(page.ids)}
    assert twice == {}


def test_links_stay_on_the_site_and_lead_somewhere(read):
    client, seen = read
    found = {link for one in seen.values() for link in Page(one.text).links}
    outside = [link for link in found if not link.startswith(("/", "#", "data:,", "?"))]
    assert outside == []
    inside = sorted(link for link in found if link.startswith("/") and "RUN" not in link)
    broken = {
        link: answer.status_code
        for link in inside[:: max(1, len(inside) // 40)]
        if (answer := client.get(link)).status_code >= 400
    }
    assert broken == {}


def test_no_text_of_the_store_becomes_a_script(read):
    _, seen = read
    for path, one in seen.items():
        for script in Page(one.text).scripts:
            assert script.get("src", "/static/").startswith("/static/") or script.get("type") == "application/json", (
                path
            )
            assert "src" in script or script.get("type") == "application/json", path
        assert "<img" not in one.text, path
        assert "javascript:" not in "".join(Page(one.text).links), path


def test_every_table_exports_the_same_rows_as_csv_and_json(read):
    client, seen = read
    links = {link for one in seen.values() for link in Page(one.text).links if "format=csv" in link}
    for link in sorted(links)[::3][:16]:
        lines, text = client.get(link), client.get(link.replace("format=csv", "format=json"))
        assert lines.status_code == text.status_code == 200, link
        assert lines.headers["content-disposition"].startswith("attachment")
        rows = list(csv.DictReader(io.StringIO(lines.text)))
        assert len(rows) == len(json.loads(text.text)["rows"]) > 0, link
        assert not any(value[:1] in ("=", "@") for row in rows for value in row.values() if value), "spreadsheets"


@pytest.mark.parametrize("query", ["page=-1", "page=x", "sort=drop", "q=" + "a" * 400, "table=x&format=csv", "q=%00"])
def test_a_wrong_address_is_refused_in_one_line(made_up, query):
    with open_store(made_up) as store:
        answer = TestClient(application(store), base_url=HERE).get(f"/?{query}")
    assert answer.status_code in (400, 404)
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", [
    "/series/999999", "/runs/0", "/alerts/99", "/cases/none", "/workloads/../x", "/nowhere", "/static/../app.py",
    "/static/%2e%2e/server.py", "/reports/..%2f..%2fetc%2fpasswd",
])  # fmt: skip
def test_what_is_not_there_is_404(made_up, path):
    with open_store(made_up) as store:
        assert TestClient(application(store), base_url=HERE).get(path).status_code == 404


def test_pages_may_load_nothing_from_elsewhere_and_stand_in_no_frame(made_up):
    with open_store(made_up) as store:
        headers = TestClient(application(store), base_url=HERE).get("/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_a_name_that_is_not_the_servers_is_refused(made_up):
    with open_store(made_up) as store:
        client = TestClient(application(store), base_url=HERE)
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/", headers={"host": "127.0.0.1:8642"}).status_code == 200


def test_reports_of_a_folder_are_shown_in_a_sandbox(made_up, tmp_path):
    (tmp_path / "step.html").write_text("<p>report</p>", encoding="utf-8")
    (tmp_path / ".hidden.html").write_text("no", encoding="utf-8")
    with open_store(made_up) as store:
        client = TestClient(application(store, reports=tmp_path), base_url=HERE)
        assert "step.html" in client.get("/workloads").text
        raw = client.get("/raw/reports/step.html")
        assert raw.text == "<p>report</p>"
        assert "sandbox" in raw.headers["content-security-policy"]
        assert client.get("/raw/reports/.hidden.html").status_code == 404
