"""`nearpeak train-bench` and `nearpeak plan loader`: files, headlines, JSON, pages, and one-line errors."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.core.edge.training_matrix import TrainingMatrix
from nearpeak.errors import NearpeakError
from nearpeak.exchange.training_plan_file import plan_of, plan_text, read_plan

LOADER = ("plan", "loader", "--files", "23080", "--bytes", "27KB", "--ram", "4GB", "--compute", "41ms", "--read",
          "18MB/s", "--prep", "5.2ms/item", "--batch", "16", "--workers", "0,1,2,4")  # fmt: skip


def said(*words):
    done = CliRunner().invoke(application(), [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_loader_says_epochs_stalls_and_what_suffices(tmp_path):
    text = said(*LOADER, "--text")
    assert "compute limits from 3\n  workers" in text
    assert len(text.splitlines()) <= 25
    answer = json.loads(said(*LOADER, "--json"))
    assert [row["later"]["worker_count"] for row in answer["rows"]] == [0, 1, 2, 4]
    assert answer["rows"][0]["later"]["epoch_s"] == pytest.approx(1443 * (0.041 + 16 * 0.0052))
    assert answer["rows"][0]["first"]["epoch_s"] == pytest.approx(1443 * (0.041 + 16 * (0.0052 + 27e3 / 18e6)))
    assert "t_f + n max" in said(*LOADER, "--text", "--why")
    (tmp_path / "times").write_text("5 ms\n# a slow one\n50 ms\n0.005\n")
    replayed = json.loads(said(*LOADER, "--times", tmp_path / "times", "--json"))["replays"]
    assert replayed[3]["head_of_line_s"] > 0
    said(*LOADER, "--html", tmp_path / "page.html", "--text")
    assert "Data loader" in (tmp_path / "page.html").read_text()


def test_a_recorded_time_beyond_all_measure_is_refused_with_its_file(tmp_path):
    (tmp_path / "times").write_text("5 ms\n1e308\n")
    with pytest.raises(NearpeakError, match="times: an item takes 1e"):
        said(*LOADER, "--times", tmp_path / "times")


def test_a_plan_of_cells_that_nothing_runs_is_refused_with_its_file(tmp_path):
    with pytest.raises(NearpeakError, match=r"^here\.toml: .*'vgg' is not one of"):
        plan_of('kind = "train-bench"\nmodels = ["vgg"]', "here.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--workers", "1,1"), "--workers"), (("--cores", "2x"), "--cores"), (("--bytes", "27"), "--bytes"),
     (("--order", "sorted"), "order"), (("--compute", "41"), "--compute"), (("--ram", ""), "--ram: is missing"),
     (("--measure", "lenet5"), "--measure")],
)  # fmt: skip
def test_loader_refusals_are_one_line(words, message):
    with pytest.raises(NearpeakError, match=message) as error:
        said(*LOADER, *words, "--text")
    assert "\n" not in str(error.value)


def test_a_plan_is_written_and_read(tmp_path):
    place = tmp_path / "plan.toml"
    text = said("train-bench", "plan", "--models", "lenet5,resnet18", "--workers", "0,2", "--repeats", 2, "--items",
                "lenet5=64", "--out", place, "--json")  # fmt: skip
    assert json.loads(text) == {"plan": str(place), "run_count": 16}
    assert said("train-bench", "plan", "--repeats", 1, "--out", tmp_path / "all.toml", "--text").startswith("24 runs")
    plan = read_plan(place)
    cells = list(plan.cells())
    assert plan_of(plan_text(plan), "plan") == plan
    assert Counter(cell.label for cell in cells).most_common()[-1][1] == 2
    blocks = [[cell.label for cell in cells if cell.round == number] for number in (0, 1)]
    assert sorted(blocks[0]) == sorted(blocks[1])
    assert blocks[0] != blocks[1]
    assert {cell.item_count for cell in cells} == {64, 128}


def test_pairs_run_a_b_b_a_and_modes_one_after_the_other():
    plan = TrainingMatrix(worker_count=(0, 2), pair="worker_count", repeat_count=2, modes=("15W", "25W"))
    cells = list(plan.cells())
    for place in range(0, len(cells), 4):
        four = cells[place : place + 4]
        assert [cell.worker_count for cell in four] == [0, 2, 2, 0]
        assert len({(cell.model, cell.cache, cell.mode) for cell in four}) == 1
    assert sum(one.mode != other.mode for one, other in pairwise(cells)) == 1
    assert len({cell.key("") for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("text", "message"),
    [("kind = 'other'", "no plan"), ("kind = 'train-bench'\nmodel = 1", "no key"), ("a =", "TOML"),
     ("kind = 'train-bench'\nmodels = ['vgg']", "vgg"), ("kind = 'train-bench'\nworkers = [0, 0]", "each once"),
     ("kind = 'train-bench'\npair = 'seed'", "pair"), ("kind = 'train-bench'\nrepeats = 0", "repeats"),
     ("kind = 'train-bench'\nitems = {vgg = 1}", "vgg"), ("kind = 'train-bench'\nthreads = 'x'", "thread"),
     ("kind = 'train-bench'\nrepeats = 2000000", "runs")],
)  # fmt: skip
def test_plans_that_are_refused(text, message):
    with pytest.raises(NearpeakError, match=message):
        plan_of(text, "plan.toml")


def test_a_run_without_budget_is_reported_as_left_to_do(tmp_path):
    place = tmp_path / "plan.toml"
    said("train-bench", "plan", "--models", "lenet5", "--repeats", 1, "--out", place)
    text = said("train-bench", "run", place, "--budget", "0.000001ms", "--data", tmp_path, "--text")
    assert "8 runs left to do" in text
    with pytest.raises(NearpeakError, match="there is no store"):
        said("train-bench", "report", "--store", tmp_path / "none.db", "--text")
