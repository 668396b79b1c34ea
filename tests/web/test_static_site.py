"""The dashboard as files: they open without a server, twice the same bytes, and hold what the pages hold."""

import hashlib
import json

import pytest
from tests.web.test_in_browser import NOT_BLANK
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import SpecError
from nearpeak.store import open_store
from nearpeak.web.static_site import export_site


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store with one device of the made-up history."""
    from nearpeak.history.demo_series import demo_runs
    from nearpeak.history.demo_store import SUBJECTS
    from nearpeak.history.regression_groups import regressed, save_regressions
    from nearpeak.history.series_tracks import track_of

    place = tmp_path_factory.mktemp("small") / "small.db"
    with open_store(place, create=True) as store:
        runs = demo_runs(SUBJECTS[:3], lambda *_: 1e-4, commits=40)
        store.ingest_all([one for one in runs if "H200" in one.device.name])
        tracks = [track_of(store, one.id) for one in store.series()]
        save_regressions(store, tracks, regressed(tracks))
    return place


@pytest.fixture(scope="module")
def site(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    with open_store(small) as store:
        export_site(store, folder)
    return folder


def digests(folder):
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest()
            for one in sorted(folder.rglob("*")) if one.is_file()}  # fmt: skip


def test_the_same_store_gives_the_same_bytes(small, site, tmp_path):
    done = CliRunner().invoke(application(), ["export", "--static", str(tmp_path / "again"), "--store", str(small)])
    assert done.exit_code == 0, done.output
    assert digests(tmp_path / "again") == digests(site)


def test_pages_open_from_files_with_charts_and_links(watched, site):
    for name in ("index", "series", "series/1", "alerts/1", "runs/1", "fleet", "efficiency", "opportunities", "compare",
                 "targets", "targets/h200_sxm", "settings", "workloads", "cases", "runs"):  # fmt: skip
        page = watched.open((site / f"{name}.html").as_uri())
        assert all(count > 3 for count in page.evaluate(NOT_BLANK)), f"{name}: a chart is blank"
        links = page.eval_on_selector_all("a[href]", "all => all.map((one) => one.href)")
        places = {link.partition("#")[0].removeprefix("file://") for link in links if not link.startswith("javascript")}
        missing = [place for place in places if not (site.parent / place).is_file()]
        assert missing == [], name
    page.goto((site / "series" / "1.html").as_uri())
    page.focus("[data-chart]")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*.html")


def test_tables_lie_beside_their_pages(site):
    rows = json.loads((site / "series" / "1.history.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 40
    assert len((site / "series" / "1.history.csv").read_text(encoding="utf-8").splitlines()) == 41


def test_what_only_a_server_can_do_is_left_out(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    for word in ("/sign-in", "/search", 'method="post', "http://", "https://"):
        assert word not in text


def test_a_folder_that_is_there_is_not_written_over(small, site):
    with open_store(small) as store, pytest.raises(SpecError, match="exists already"):
        export_site(store, site)
