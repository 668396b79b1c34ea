"""What a visitor trips over: commands that run as they stand, searches that find, charts of one commit, dead links."""

import html
import re
import shlex

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra web)")
pytest.importorskip("httpx", reason="httpx is not installed (extra dev)")
from starlette.testclient import TestClient
from tests.web.conftest import HERE, served
from typer.testing import CliRunner

from nearpeak.cli import application as commands
from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.history.demo_series import demo_runs
from nearpeak.history.demo_store import SUBJECTS
from nearpeak.store import open_store
from nearpeak.targets import target_of
from nearpeak.web.server import application
from nearpeak.web.static_site import export_site


@pytest.fixture(scope="module")
def young(tmp_path_factory):
    """The place of a store whose only commit was measured once."""
    place = tmp_path_factory.mktemp("young") / "young.db"
    with open_store(place, create=True) as store:
        runs = demo_runs(SUBJECTS[:2], lambda *_: 1e-4, commits=40)
        store.ingest(next(one for one in runs if "H200" in one.device.name))
    return place


@pytest.fixture
def client(made_up, tmp_path):
    """A reader of the made-up history, with a folder of one report beside it."""
    (tmp_path / "resnet-50-training.html").write_text("<title>a report</title>", encoding="utf-8")
    with open_store(made_up) as store:
        yield TestClient(application(store, reports=tmp_path), base_url=HERE)


def copied_commands(text):
    """Commands that the buttons of a page copy."""
    return [html.unescape(one) for one in re.findall(r'data-copy="([^"]+)"', text)]


def rows(client, address, table, **query):
    """A table of a page as programs take it."""
    return client.get(address, params={"table": table, "format": "json", **query}).json()["rows"]


@pytest.mark.parametrize("path", ["/series/1", "/alerts/1"])
def test_commands_about_the_store_run_as_they_are_copied(client, path):
    reading = [one for one in copied_commands(client.get(path).text) if re.match("nearpeak (history|alerts) ", one)]
    assert reading
    for command in reading:
        done = CliRunner().invoke(commands(), shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output)


def test_commands_of_files_name_no_folder(made_up, tmp_path):
    with open_store(made_up) as store:
        export_site(store, tmp_path / "site")
    found = copied_commands((tmp_path / "site/series/1.html").read_text())
    assert f"nearpeak history 1 --store {made_up.name}" in found
    assert not any(str(made_up.parent) in one for one in found)


def test_a_case_is_reproduced_with_each_of_its_runners_on_all_its_devices(client):
    text = client.get("/search", params={"q": "softmax"}).text
    case = re.search(r'href="(/cases/[^"]+)"', client.get(re.search(r'href="(/series/\d+)"', text)[1]).text)[1]
    found = copied_commands(client.get(case).text)
    assert {"torch_cuda", "triton"} <= {word for one in found if "measure" in one for word in shlex.split(one)}
    assert sum(one.count("--target") for one in found if one.startswith("nearpeak bound")) == 3


@pytest.mark.parametrize(
    ("words", "table"),
    [("gemm", "alerts"), ("soft", "workloads"), ("resnet train", "reports"), ("nvidia h200", "targets")],
)
def test_search_finds_more_than_titles(client, words, table):
    assert f'id="t-{table}"' in client.get("/search", params={"q": words}).text


def test_search_finds_the_alerts_of_a_kernel_and_no_others(client):
    found = {one["alert"] for one in rows(client, "/search", "alerts", q="gemm")}
    assert any("tiles of products" in one for one in found)
    assert not any("softmax" in one for one in found)


def test_targets_say_the_fastest_rate_of_every_device(client):
    found = {one["target"]: one["flop_per_s"] for one in rows(client, "/targets", "targets")}
    assert all(found.values())
    assert found["H100 SXM 80 GB"] == target_of("h100_sxm").peaks["tensor.fp8"].flop_per_s
    assert found["A100 SXM 80 GB"] == target_of("a100_sxm_80gb").peaks["tensor.bf16"].flop_per_s, "not that of int4"


def test_a_run_is_compared_with_the_commit_before_it(client, made_up):
    with open_store(made_up) as store:
        newest = store.commits.newest(3)
        assert store.commits.before(newest[1].sha) == newest[2].sha
        first = store.commits.newest(100)[-1].sha
        assert (store.commits.before(first), store.commits.before("none")) == ("", "")
    text = client.get("/compare", params={"b": newest[1].sha}).text
    assert f'<option value="{newest[2].sha}" selected>' in text
    assert "compare with the commit before" not in client.get("/runs/1").text
    last = re.findall(r'href="(/runs/\d+)"', client.get("/runs").text)[0]
    assert f"a={newest[1].sha}&amp;b={newest[0].sha}" in client.get(last).text


def test_one_is_one_and_an_empty_list_has_no_exports(young):
    with open_store(young) as store:
        client = TestClient(application(store), base_url=HERE)
        assert "in 1 commit<" in client.get("/series/1").text
        assert "too few commits" in client.get("/series/1").text
        assert "seriess" not in client.get("/settings").text
        assert "Two commits are needed; the store has 1" in client.get("/compare").text
        assert "table=alerts" not in client.get("/").text


def test_files_without_alerts_link_to_nothing_that_is_not_there(young, tmp_path):
    with open_store(young) as store:
        export_site(store, tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.html"):
        for link in re.findall(r'href="([^"#:]+)"', page.read_text()):
            assert (page.parent / link.partition("?")[0]).is_file(), (page.name, link)


def test_an_address_that_is_no_page_says_so(client):
    answer = client.get("/nothing")
    assert answer.status_code == 404
    assert "there is no page /nothing" in answer.text


SPREAD = """(names) => { const one = document.querySelector("[data-chart] canvas"), box = one.getContext("2d");
  const data = box.getImageData(0, 0, one.width, one.height).data;
  return names.map((name) => { const columns = new Set();
    box.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const wanted = box.fillStyle.match(/\\w\\w/g).map((part) => parseInt(part, 16));
    for (let at = 0; at < data.length; at += 4)
      if (data[at + 3] > 100 && wanted.every((part, place) => Math.abs(data[at + place] - part) < 40))
        columns.add(at / 4 % one.width);
    return columns.size / one.width; }); }"""
"""Part of the width of a chart that has points of some colours."""


def test_levels_are_drawn_across_the_chart_of_a_single_commit(watched, young):
    with served(young) as address:
        page = watched.open(f"{address}/series/1")
        light, predicted = page.evaluate(SPREAD, ["--ink", "--matrix"])
        assert light > 0.4, "dashes of the speed of light"
        assert predicted > 0.3, "dots of the prediction"


def test_the_menu_shows_where_one_is_on_a_phone(watched, address):
    watched.page.set_viewport_size({"width": 390, "height": 800})
    for path in ("/settings", "/workloads", "/"):
        box = watched.open(address + path).locator(".menu [aria-current]").bounding_box()
        assert 0 <= box["x"] <= 390 - box["width"], path


def test_very_long_names_keep_the_page_as_wide_as_the_screen(watched, tmp_path):
    name = "kernel_" + "x" * 400
    with open_store(tmp_path / "long.db", create=True) as store:
        for number in range(3):
            values = SampleSet(
                case=name,
                label=f"{name} n={number}",
                workload=name,
                values=(1e-3, 1.1e-3),
                metric=TIME,
                testbed=Testbed(name=name, policy={name: name}),
            )
            commit = Revision(sha=f"{number}" * 40, repository="r", position=number, subject=name, author=name)
            store.ingest(RunRecord(
                device=Device(name=f"device {name}"), source=Source(digest=f"{number}"), samples=(values,),
                branch="branch" + name, revision=commit, facts={name: name}, stack=((name, name),), started_ns=number,
            ))  # fmt: skip
    with served(tmp_path / "long.db") as address:
        for width in (390, 1440):
            watched.page.set_viewport_size({"width": width, "height": 900})
            for path in ("/", "/series", "/series?as=charts", "/series/1", "/compare", "/fleet", "/runs", "/runs/1",
                         "/cases", "/workloads", "/search?q=kernel", f"/search?q={300 * 'y'}"):  # fmt: skip
                page = watched.open(address + path)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, path)
