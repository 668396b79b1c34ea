"""`nearpeak plan retrieval`: a service with and without a ranker, its page, and one-line errors."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from nearpeak.api.questions import case
from nearpeak.cli import application
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NearpeakError
from nearpeak.frontends.files.saved_workload import save_text
from nearpeak.prediction.host_costs import eager_cost

PLAN = ("plan", "retrieval", "1Mx32", "--on", "h100_sxm", "--qps", "2000", "--p99", "20ms")


@pytest.fixture
def data(tmp_path):
    """Few vectors, so that recall is measured at once."""
    file = tmp_path / "vectors.npy"
    np.save(file, np.random.default_rng(0).standard_normal((1500, 4)) @ np.ones((4, 32)))
    return ("--data", str(file))


def ranker(tmp_path, **origin):
    """A ranking step: an embedding and a product for 100 items."""
    cases = (case("embedding_bag", tokens=2600, bags=100, dim=64, vocab=100_000, dtype="fp16"),
             case("gemm", m=100, n=256, k=512, dtype="fp16"))  # fmt: skip
    calls = tuple(Call(case=kernel, operator=kernel.op, phase="forward") for kernel in cases)
    file = tmp_path / "ranker.json"
    file.write_text(save_text(Workload(name="dlrm", step="forward", calls=calls, origin=origin)), "utf-8")
    return str(file)


def test_a_service_meets_recall_rate_and_latency(data):
    done = CliRunner().invoke(application(), [*PLAN, *data, "--price", "3", "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    best = found["best"]
    assert best["latency_s"]["p99"] <= 0.02
    assert best["setting"]["point"]["recall_ratio"] >= 0.95
    assert best["device_count"] == 1
    assert found["usd_per_million_queries"] == pytest.approx(3 / 3600 / 2000 * 1e6)
    assert "vectors.npy" in found["curve_source"]


def test_a_ranker_is_a_second_stage(data, tmp_path):
    page = tmp_path / "page.html"
    words = ("--ranker", ranker(tmp_path, batch="100"), "--candidates", "200", "--html", str(page))
    done = CliRunner().invoke(application(), [*PLAN, *data, *words, "--text"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "200 ranked by dlrm" in " ".join(done.stdout.split())
    assert "1 ranker" in done.stdout
    assert len(done.stdout.splitlines()) <= 25
    assert page.read_text("utf-8").startswith("<!doctype html>")
    found = json.loads(CliRunner().invoke(application(), [*PLAN, *data, *words[:4], "--json"]).stdout)
    assert found["best"]["ranker_count"] == 1
    assert found["rank_s"]["64"] == pytest.approx(2 * found["rank_s"]["32"])
    assert found["rank_s"]["1"] == pytest.approx(eager_cost(2, 2, 0).usual_s)  # small steps wait for the host
    assert min(found["batch_s"].values()) > eager_cost(1, 1, 0).usual_s


@pytest.mark.parametrize(("words", "message"), [
    (("plan", "retrieval", "many", "--on", "h100_sxm", "--qps", "1", "--p99", "1s"), "is not COUNTxELEMENTS"),
    (("plan", "retrieval", f"{'9' * 5000}x32", *PLAN[3:]), "characters): is not COUNTxELEMENTS"),
    ((*PLAN, "--qps", "-1"), "--qps"),
    ((*PLAN, "--p99", "soon"), "--p99"),
    ((*PLAN, "--recall", "2"), "--recall"),
    ((*PLAN, "--on", "h900"), "h900"),
    ((*PLAN, "--nearest", "2000000"), "at most all"),
    ((*PLAN, "--dtype", "fp7"), "fp7"),
    ((*PLAN, "--data", "lost.npy"), "lost.npy"),
    ((*PLAN, "--price", "free"), "--price"),
])  # fmt: skip
def test_wrong_input_is_one_line(words, message):
    done = CliRunner().invoke(application(), list(words))
    assert done.exit_code != 0
    assert isinstance(done.exception, (NearpeakError, SystemExit))
    assert message in f"{done.output}{done.exception}"


def test_a_limit_that_nothing_meets_and_an_unknown_batch_are_named(data, tmp_path):
    done = CliRunner().invoke(application(), [*PLAN, *data, "--p99", "1us"])
    assert "nearest is" in str(done.exception)
    done = CliRunner().invoke(application(), [*PLAN, *data, "--ranker", ranker(tmp_path)])
    assert "--ranker-batch" in str(done.exception)
