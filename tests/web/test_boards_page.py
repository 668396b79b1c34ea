"""The page of boards: a workload of the store in every power mode, and one line for what it does not answer."""

import pytest

from nearpeak.api.questions import case
from nearpeak.core.history.stored_run import TIME, Device, RunRecord, SampleSet, Source, Testbed
from nearpeak.store import open_store
from nearpeak.web.pages import boards, paths
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Setting, Site

BOARD = "jetson_orin_nano"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("boards") / "few.db", create=True) as store:
        product = case("gemm", m=64, n=64, k=64, dtype="fp16")
        flat = {name: value for name, value in product.record().items() if isinstance(value, str | int)}
        timed = SampleSet(case=product.digest, label="gemm", metric=TIME, testbed=Testbed(name="bed"), values=(1e-5,),
                          parameters=flat, workload="gemm")  # fmt: skip
        store.ingest(RunRecord(device=Device(name="a board"), samples=(timed,), source=Source(digest="1" * 64)))
        yield Site(store, Setting(paths=paths()))


def built(site, **asked):
    return boards.build(site, Query(query={"model": "gemm", "on": BOARD} | asked))


def test_a_workload_of_the_store_is_answered_with_all_modes_and_the_chosen_one(site):
    view = built(site)
    assert view.context["error"] == ""
    modes, bounds = view.tables
    assert {row[0] for row in modes.rows} == {"full", "7W", "15W", "25W"}
    (chosen,) = (row[0] for row in modes.rows if "chosen" in row[-1])
    assert view.context["document"].lead.startswith(f"{chosen}: ")
    assert bounds.name == "bounds"
    assert any("No measurement of this board" in note for note in view.context["notes"])


def test_limits_leave_modes_out(site):
    view = built(site, deadline="1ns")
    assert "No mode keeps the limits" in view.context["document"].lead
    assert all("outside limits" in row[-1] for row in view.tables[0].rows)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("on", "h100_sxm", "has no power modes"), ("on", "/etc/passwd", "has no power modes"), ("batch", "257", "1 to 256"),
    ("model", "/etc/passwd", "is neither a model"), ("model", "problem.py", "is neither a model"),
    ("power", "15V", "power: "), ("deadline", "0 s", "is not above 0"), ("idle", "3 W", "give both"),
    ("minimise", "price", "is not one of"), ("scope", "moon", "moon"), ("engine", "no-such", "no-such"),
])  # fmt: skip
def test_what_it_does_not_answer_is_said_in_one_line(site, name, value, message):
    view = built(site, **{name: value})
    assert message in view.context["error"]
    assert "\n" not in view.context["error"]
    assert view.context["document"] is None


def test_one_model_is_captured_at_a_time(site):
    with boards._CAPTURING:
        assert "another model is being captured" in built(site, model="resnet-50").context["error"]
