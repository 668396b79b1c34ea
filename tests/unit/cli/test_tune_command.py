"""`nearpeak tune`: replays, studies of several objectives, pages, and one line for whatever is wrong."""

import json

import pytest
from tests.unit.tuning.planted import recorded_file
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import NearpeakError

COSTS = """
def cost(seed, width, depth):
    if depth == 9:
        raise RuntimeError("no room")
    return {"latency_s": width * depth * 1e-3, "error_ratio": 1.0 / (width + depth)}
"""
SPACE = """
name = "net"
evaluate = "costs.py:cost"
objectives = ["latency_s", "error_ratio"]
constraints = ["width * depth <= 40"]
[parameters]
width = [1, 2, 4, 8]
depth = [1, 2, 4, 9]
"""


def run(*words):
    done = CliRunner().invoke(application(), ["tune", *map(str, words)])
    if isinstance(done.exception, NearpeakError):
        raise done.exception
    return done


@pytest.fixture
def space(tmp_path):
    (tmp_path / "costs.py").write_text(COSTS)
    path = tmp_path / "net.toml"
    path.write_text(SPACE)
    return path


def test_a_replay_says_evaluations_beside_the_exact_figure_of_chance(tmp_path):
    recorded = recorded_file(tmp_path / "planted.json.gz")
    page = tmp_path / "r.html"
    done = run("--replay", recorded, "--seeds", 5, "--html", page, "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["found_runs"] == 5
    assert record["random_mean_count"] == pytest.approx(161 / (record["within_count"] + 1))
    text = run("--replay", recorded, "--seeds", 5, "--text").stdout
    assert text.splitlines()[1].startswith("model: ")
    assert "random, exact" in text
    assert len(text.splitlines()) <= 25
    assert "random, exact" in page.read_text()


def test_a_study_of_two_objectives_gives_the_front_and_goes_on(space, tmp_path):
    words = (space, "--search", "random", "--study", tmp_path / "s.jsonl", "--html", tmp_path / "s.html")
    done = run(*words, "--budget", 5, "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["trials"]) == 5
    record = json.loads(run(*words, "--budget", 50, "--json").stdout)
    assert record["legal_count"] == len(record["trials"]) == 15
    front = [trial["settings"] for trial in record["trials"] if trial["position"] in record["front"]]
    assert {"width": 1, "depth": 1} in front
    assert {"width": 8, "depth": 4} in front
    assert sum(trial["outcome"] == "failed" for trial in record["trials"]) == 3
    page = (tmp_path / "s.html").read_text()
    assert "no room" in page
    assert "<script src" not in page


def test_what_cannot_be_tuned_is_one_line_and_the_study_is_kept(space, tmp_path):
    study = tmp_path / "s.jsonl"
    for words, message in (
        ((), "needs the file of a space"), ((tmp_path / "no.toml",), "not found"),
        ((space, "--replay", space), "not both"), (("--replay", space), "cannot be read|is no recorded"),
        ((space, "--search", "annealing"), "--search 'annealing'"), ((space, "--search", "model"), "one objective"),
        ((space, "--budget", "0"), "at least one"), ((space, "--budget", "soon"), "is not a time"),
        ((space, "--default", "width=3,depth=1"), "none of its values"),
        ((space, "--default", "width=8,depth=9"), "the default width=8,depth=9 is not legal"),
    ):  # fmt: skip
        with pytest.raises(NearpeakError, match=message) as raised:
            run(*words)
        assert "\n" not in str(raised.value)
    run(space, "--search", "random", "--budget", 3, "--study", study, "--json")
    before = study.read_bytes()
    with pytest.raises(NearpeakError, match="another study: seed differs"):
        run(space, "--search", "random", "--seed", 4, "--study", study)
    space.write_text(SPACE.replace("<= 40", "<= 0"))
    with pytest.raises(NearpeakError, match="constraint 'width \\* depth <= 0' never holds"):
        run(space, "--search", "random", "--study", tmp_path / "t.jsonl")
    assert study.read_bytes() == before


def test_a_space_whose_every_configuration_fails_is_one_line_and_keeps_its_study(tmp_path):
    (tmp_path / "broken.py").write_text("def f(inputs, *, a, **_):\n    raise ValueError('always')\n")
    path, study = tmp_path / "b.toml", tmp_path / "s.jsonl"
    path.write_text(
        'function = "broken.py:f"\ncase = "softmax rows=8 columns=8 dtype=fp32"\n[parameters]\na = [1, 2]\n'
    )
    with pytest.raises(
        NearpeakError, match=r"none of 2 configurations has a time; a=1: .*ValueError: always"
    ) as raised:
        run(path, "--study", study)
    assert str(raised.value).endswith("keeps the study")
    assert "\n" not in str(raised.value)
    assert sum('"trial"' in line for line in study.read_text().splitlines()) == 2


def test_on_a_pipe_each_stage_is_a_line_of_stderr_and_the_answer_is_on_stdout(space, tmp_path):
    words = (space, "--search", "random", "--study", tmp_path / "s.jsonl", "--json")
    done = run(*words, "--budget", 5)
    assert json.loads(done.stdout)["stop_reason"]
    begin, end = done.stderr.splitlines()
    assert begin == "net: 15 legal configurations; search random, at most 5 evaluations"
    assert end == "search ended, the budget of 5 evaluations is spent"
    assert "5 already in the journal" in run(*words, "--budget", 6).stderr
