"""`nearpeak suite` from the outside, and the ready-made suites: read without a framework, built again alike."""

import json
from dataclasses import replace

import pytest
from benchmarks.ready_suites import __main__ as recipes
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import application
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.suites.suite_file import save_text
from nearpeak.suites.suite_names import read_suite, ready_names, ready_suite


def run(*words):
    done = CliRunner().invoke(application(), ["suite", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_build_writes_what_show_and_diff_read(tmp_path):
    few, more = tmp_path / "few.jsonl", tmp_path / "more.jsonl"
    run("build", "--sweep", "op=fill dtype=bf16 elements=1:4", "--where", "elements % 2 == 0", "--out", few)
    run("build", few, few, "--op", "fill", "--name", "both", "--out", more)
    shown = json.loads(run("show", more, "--json"))
    assert [one["name"] for one in shown["sources"]] == ["sweep 1", "directed fill"]
    assert shown["coverage"]["directed"][-1]["met_count"] == shown["coverage"]["directed"][-1]["valid_count"]
    assert set(shown["coverage"]) >= {"use", "directed", "scored_count"}
    changes = [json.loads(line)["change"] for line in run("diff", few, more, "--json").splitlines()]
    assert set(changes) <= {"added", "changed"}
    assert "added" in changes


def test_a_cover_keeps_what_it_leaves_out_and_says_whose_time_it_counts(tmp_path):
    whole, cheap = tmp_path / "whole.jsonl", tmp_path / "cheap.jsonl"
    lines = [{"op": "gemm", "dtype": "bf16", "m": m, "n": 4096, "k": 4096, "count": 2} for m in (4096, 8192, 16384)]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run("build", tmp_path / "calls.jsonl", "--out", whole)
    run("build", whole, "--cover", "99%", "--target", "h100_sxm", "--out", cheap)
    found = read_suite(cheap)
    assert [dict(one.case.axes)["m"] for one in found.chosen] == [4096]
    assert [one.call_count for one in found.cases] == [2, 2, 2]
    assert found.plan["time"].startswith("bound on h100_sxm plus a launch of")
    scores = tmp_path / "scores.jsonl"
    scores.write_text(json.dumps({"digest": found.chosen[0].case.digest, "killed": 3, "survived": 1}), encoding="utf-8")
    use = json.loads(run("show", cheap, "--scores", scores, "--json"))["coverage"]["use"]
    assert [row["effective_ratio"] for row in use if (row["workload"], row["identity"]) == ("calls", "saturated")] == [
        0.75
    ] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--op", "fill", "--where", "elements < 3"], "constrains sweeps, and there is none"),
        (["--op", "fill", "--identity", "alike"], "is not one of exact, class, saturated"),
        (["--op", "fill", "--target", "h100_sxm"], "--cover and --within count"),
        (
            ["--op", "fill", "--cover", "9%", "--target", "h100_sxm", "--target", "a2"],
            "one is needed here, got",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(words, said):
    with pytest.raises(SpecError, match=said):
        run("build", *words)


@pytest.mark.parametrize(
    ("sources", "option", "said"),
    [
        (
            ["llama-3-8b", "resnet-50"],
            "--sequence",
            "--sequence 128: resnet-50 reads no text; leave it out, or save work",
        ),
        (
            ["llama-3-8b", "calls.txt"],
            "--dtype",
            "calls.txt: --dtype has no meaning for it; leave it out, or save workl",
        ),
        (
            ["fill.toml", "llama-3-8b"],
            "--batch",
            "fill.toml: --batch has no meaning for it; leave it out, or save workl",
        ),
        (
            ["llm_inference", "net.onnx"],
            "--kv",
            "net.onnx: --kv has no meaning for it; leave it out, or save workloads",
        ),
        (["resnet-50"], "--sequence", "--sequence 128: resnet-50 reads no text; leave it out$"),
    ],
)
def test_options_that_one_source_has_no_use_for_are_refused_before_any_is_captured(sources, option, said, monkeypatch):
    monkeypatch.setattr("nearpeak.api.questions.capture_with", lambda *_, **__: pytest.fail("captured"))
    with pytest.raises(SpecError, match=said):
        run("build", *sources, option, "bf16" if option == "--dtype" else "128")


def test_what_only_a_capture_refuses_names_the_other_way_too(monkeypatch):
    def refuses(source, _options):
        raise SpecError(f"--sequence 4: {source} reads sound, not tokens; leave it out")

    monkeypatch.setattr("nearpeak.api.questions.capture_with", refuses)
    with pytest.raises(SpecError, match="leave it out, or save workloads first"):
        run("build", "hf:wav2vec2", "llama-3-8b", "--sequence", "4")
    with pytest.raises(SpecError, match=r"leave it out$"):
        run("build", "hf:wav2vec2", "--sequence", "4")


@pytest.mark.parametrize("words", [["suite", "show"], ["suite", "build"], ["calibrate", "fit"], ["audit"]])
def test_help_does_not_offer_more_targets_than_are_taken(words):
    said = " ".join(CliRunner().invoke(application(), [*words, "--help"]).stdout.split())
    assert "TOML file. Repeatable" not in said
    assert "One device: a name, partition" in said


def test_what_was_written_and_what_constraints_removed_is_said(tmp_path, monkeypatch):
    out = tmp_path / "few.jsonl"
    words = ["suite", "build", "--sweep", "op=fill dtype=bf16 elements=1:4", "--where", "elements != 2", "--out", out]
    said = CliRunner().invoke(application(), list(map(str, words))).stderr
    assert said.endswith("few.jsonl: 3 cases; constraints removed 1 point of sweeps\n")
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    assert "sweep 1: 1 point removed by elements != 2" in run("show", out)
    assert "sweep 1: sweep 1" not in run("show", out, "--cases")


def test_of_a_covering_array_combinations_are_counted_and_not_points(tmp_path, monkeypatch):
    out = tmp_path / "few.jsonl"
    line = "op=gemm dtype=bf16 m=1,2 n=1,2 k=1,2 cover=2"
    words = ["suite", "build", "--sweep", line, "--where", "m == n", "--out", str(out)]
    said = CliRunner().invoke(application(), words).stderr
    assert said.endswith("few.jsonl: 4 cases; constraints ruled out 2 combinations of values\n")
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    assert "sweep 1: 2 combinations removed by m == n\n" in run("show", out)


def test_a_cover_of_cases_that_no_workload_calls_names_no_share_of_use(tmp_path):
    words = ["suite", "build", "--op", "fill", "--cover", "50%", "-t", "h100_sxm", "--out", str(tmp_path / "s.jsonl")]
    said = CliRunner().invoke(application(), words).stderr
    assert "no workload calls any of them" in said
    assert "%" not in said


def test_a_cover_with_directed_cases_counts_those_that_workloads_call(tmp_path):
    line = {"op": "softmax", "dtype": "bf16", "rows": 1, "columns": 64, "count": 2}
    (tmp_path / "calls.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    words = ["suite", "build", str(tmp_path / "calls.jsonl"), "--directed", "--cover", "90%", "-t", "h100_sxm"]
    said = CliRunner().invoke(application(), [*words, "--out", str(tmp_path / "s.jsonl")]).stderr
    assert " cases are run; 1 of the 1 that workloads call,\n  in 100.0% of their time\n" in said
    plan = read_suite(tmp_path / "s.jsonl").plan
    assert plan["time of chosen cases of workloads"] == plan["time of all cases of workloads"]


@pytest.mark.parametrize("words", [["--cover", "99"], ["--cover", "0%"], ["--cover", "101%"], ["--cover", "x%"]])
def test_shares_that_are_none_are_refused(words):
    with pytest.raises(SpecError, match="is not a share from 0 to 100 percent"):
        run("build", "--op", "fill", *words)


def test_a_cover_needs_a_target_and_an_empty_suite_is_refused():
    with pytest.raises(SpecError, match="--target: is missing"):
        run("build", "--op", "fill", "--cover", "50%")
    with pytest.raises(SpecError, match="no case; give a model or a file, or cases by --sweep, --op or --ready"):
        run("build")
    with pytest.raises(SpecError, match="no such file, nor a ready-made suite"):
        run("show", "nothing.jsonl")


def test_every_ready_made_suite_reads_back_and_says_where_it_came_from():
    assert set(ready_names()) == {*recipes.MODELS, *recipes.RULES}
    assert run("build", "--ready", "list").split() == list(ready_names())
    for name in ready_names():
        suite = ready_suite(name)
        assert suite.cases
        assert all(source.origin for source in suite.sources)
        if name in recipes.MODELS:
            assert all(source.kind == "usecase" and "torch" in source.origin for source in suite.sources)
    with pytest.raises(UnknownNameError, match="did you mean group_norm"):
        ready_suite("groupnorm")


@pytest.mark.parametrize("name", recipes.RULES)
def test_suites_of_rules_are_what_their_recipes_say_now(name):
    stored = (recipes.FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    assert save_text(recipes.built(name)) == stored, f"run 'python -m benchmarks.ready_suites {name}'"


def test_the_recipe_of_recommendation_captures_what_is_stored():
    torch = pytest.importorskip("torch")
    suite = ready_suite("recommendation")
    if suite.sources[0].origin["torch"] != torch.__version__:
        pytest.skip("the stored suite was captured with another PyTorch")
    built = recipes.built("recommendation")
    assert {one.case: one.call_count for one in built.cases} == {one.case: one.call_count for one in suite.cases}


def test_what_of_its_sources_a_suite_has_no_case_for_is_said_in_one_line(tmp_path):
    pytest.importorskip("torch")
    log, out, again = tmp_path / "ours.log", tmp_path / "ours.jsonl", tmp_path / "again.jsonl"
    rows = "".join(f"Operator: aten.absent{n}.default\ncnt: {n}, ((T([2], f16),), {{}})\n" for n in range(1, 8))
    log.write_text("Operator: aten.exp.default\ncnt: 2, ((T([2, 4], f16),), {})\n" + rows, encoding="utf-8")
    for words in ([log, "--out", out], [out, "--out", again]):
        said = CliRunner().invoke(application(), ["suite", "build", *map(str, words)]).stderr.splitlines()
        names = ", ".join(f"aten.absent{n}.default ({n})" for n in (7, 6, 5, 4, 3))
        assert said[1:] == [
            f"no case for 28 of 30 calls, which no operator covers: {names} and 2 more; ours: 7 lines could not be"
            " read; 'nearpeak suite show' lists all"
        ]
    whole = CliRunner().invoke(application(), ["suite", "build", "--op", "fill", "--out", str(out)]).stderr
    assert "no case for" not in whole


def test_a_suite_is_taken_where_a_model_is_with_its_counts_and_what_it_lacks(tmp_path):
    lines = [{"op": "gemm", "dtype": "bf16", "m": m, "n": 4096, "k": 4096, "count": 2} for m in (4096, 8192, 16384)]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "ours.jsonl"
    run("build", tmp_path / "calls.jsonl", "--op", "fill", "--cover", "50%", "--target", "h100_sxm", "--out", out)
    suite = read_suite(out)
    suite = replace(suite, sources=(replace(suite.sources[0], uncovered={"aten.absent": 4}), *suite.sources[1:]))
    out.write_text(save_text(suite), encoding="utf-8")
    found = CliRunner().invoke(application(), ["analyze", str(out), "--target", "h100_sxm", "--json"])
    report = json.loads(found.stdout)
    called = {one.case.label(): max(1, one.call_count) for one in suite.chosen}
    assert report["call_count"] == sum(called.values()) + 4
    assert report["covered_count"] == sum(called.values())
    left = len(suite.cases) - len(suite.chosen)
    assert f"{left} of {len(suite.cases)} cases of the suite are not run, and not in this" in found.stdout
    assert nearpeak.capture("llm_inference").origin["kind"] == "suite"
    with pytest.raises(SpecError, match=r"ours\.jsonl: --batch has no meaning for it"):
        nearpeak.capture(out, batch=2)
