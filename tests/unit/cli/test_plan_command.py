"""`nearpeak plan train`: verdict, parts that add up, memory, edits, files, and one-line errors."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from nearpeak.api.training.job_plan import plan_training, stated_plan
from nearpeak.api.training.stack_calibration import stack_text
from nearpeak.cli import application
from nearpeak.core.systems.plan_words import batch_of, check_batch, plan_words, training_plan_of
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.farm.kinds import KINDS
from nearpeak.reports.systems.training_plan_report import difference_of
from nearpeak.systems.training.stack_files import stack_of
from nearpeak.targets.clusters import cluster_of

PLAN = ("plan", "train", "llama-3.2-1b", "--on", "8xh100_sxm", "--sequence", "2048", "--global-batch", "32")


def answer_of(*words):
    done = CliRunner().invoke(application(), [*PLAN, *words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def given():
    return answer_of("--parallel", "tp=2,pp=2,zero=1,sp", "--price", "2.5")


def test_the_parts_of_a_step_add_up_and_lie_inside_its_interval(given):
    time = given["time"]
    assert sum(part["time_s"] for part in time["parts"]) == pytest.approx(time["step_s"], rel=1e-9)
    assert time["low_s"] <= time["step_s"] <= time["high_s"]
    assert given["plan"]["dp"] == 2
    assert sum(time["trust"].values()) == pytest.approx(1)


def test_an_unknown_model_is_called_unknown_whatever_else_is_asked():
    done = CliRunner().invoke(application(), ["plan", "train", "inception-v3", "--on", "h100_sxm", "--batch", "32"])
    assert done.exit_code
    assert "its extents are not known" in done.output + str(done.exception)


def test_every_stage_has_its_memory_and_the_cost_follows_from_the_price(given):
    assert [row["stage"] for row in given["memory"]] == [0, 1]
    assert all(row["allocated_bytes"] == sum(row["parts"].values()) for row in given["memory"])
    cost = 8 * 2.5 / (3600 * given["tokens_per_s"]) * 1e6
    assert given["usd_per_million_tokens"] == pytest.approx(cost)


def test_edits_name_what_changes_and_never_lose_the_devices(given):
    assert 0 < len(given["edits"]) <= 8
    for edit in given["edits"]:
        plan = edit["plan"]
        assert plan["tp"] * plan["pp"] * plan["dp"] * plan["cp"] == 8
        assert "→" in edit["change"]


def test_a_search_is_no_slower_than_any_of_its_edits_that_fits():
    found = answer_of()
    assert found["search"]["executed_count"] <= found["search"]["fitting_count"] <= found["search"]["legal_count"]
    assert found["fits"]
    same_kind = [edit for edit in found["edits"] if edit["step_s"] and edit["plan"]["precision"] == "bf16"
                 and not edit["plan"]["tp_overlap"]]  # fmt: skip
    assert all(edit["step_s"] >= found["time"]["step_s"] * (1 - 1e-9) for edit in same_kind)


def test_the_terminal_says_step_fit_and_largest_loss_first(tmp_path):
    page, trace = tmp_path / "plan.html", tmp_path / "trace.json"
    words = ("--parallel", "tp=2,pp=2,zero=1", "--text", "--html", str(page), "--trace-out", str(trace))
    done = CliRunner().invoke(application(), [*PLAN, *words])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert " a step (" in text
    assert "fits (peak" in text
    assert "Largest loss:" in text
    assert "What to change" in text
    assert page.read_text("utf-8").startswith("<!doctype html>")
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    assert {event["pid"] for event in events} == {"device 0", "device 1"}


def test_two_plans_are_compared_part_by_part(given, tmp_path):
    before = tmp_path / "a.json"
    before.write_text(json.dumps(given), "utf-8")
    words = ("--parallel", "tp=2,zero=1", "--against", str(before), "--text")
    done = CliRunner().invoke(application(), [*PLAN, *words])
    assert done.exit_code == 0, done.output
    assert "before" in done.stdout
    assert "exposed tp" in done.stdout
    assert "e-0" not in done.stdout, "rounding of sums is no change"
    before.write_text("[]", "utf-8")
    refused = CliRunner().invoke(application(), [*PLAN, *words])
    assert isinstance(refused.exception, SpecError)


def test_goodput_lowers_no_step_and_raises_the_cost():
    plain = answer_of("--parallel", "zero=1", "--price", "2")
    with_failures = answer_of("--parallel", "zero=1", "--price", "2", "--goodput",
                              "checkpoint=60s,restart=10min,mtbf=3.1h")  # fmt: skip
    assert with_failures["time"]["step_s"] == plain["time"]["step_s"]
    assert with_failures["usd_per_million_tokens"] > plain["usd_per_million_tokens"]
    shares = with_failures["goodput"]["shares"]
    assert sum(share["mean"] for share in shares.values()) == pytest.approx(1)
    spot = answer_of("--parallel", "zero=1", "--price", "2", "--goodput",
                     "checkpoint=60s,restart=10min,mtbf=3.1h,spot=35%,bid=500%,sigma=10%,reversion=1d")  # fmt: skip
    assert spot["usd_per_million_tokens"] == pytest.approx(0.35 * with_failures["usd_per_million_tokens"], rel=0.05)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2", "dualpipe", "dualpipev"])
def test_every_schedule_has_a_step_and_a_memory(schedule):
    cluster = cluster_of("8xh100_sxm")
    plan = training_plan_of(f"pp=4,schedule={schedule}", 8, sequence=512, global_batch=32)
    planned = plan_training("llama-3.2-1b", cluster, plan, with_edits=False)
    assert len(planned.memory) == 4
    assert planned.time.step_s > 0


@pytest.mark.parametrize(("words", "message"), [
    (("--parallel", "tp=3"), "does not divide 8 devices; tp=2 or tp=4 would"),
    (("--parallel", "tp=2,tp=4"), "stated twice"),
    (("--parallel", "tq=2"), "did you mean tp"),
    (("--parallel", "tp=2,dp=8"), "but there are 8 devices; dp=4 would be right"),
    (("--parallel", "shards=3"), "does not divide dp 8"),
    (("--parallel", "tp=two"), "must be a whole number of at least 1"),
    (("--parallel", "tp=2", "--goodput", "mtbf=3h"), "needs checkpoint=TIME"),
    (("--parallel", "tp=2", "--price", "cheap"), "is not a price"),
    (("--parallel", "tp=2", "--tokens-per-step", "many"), "is not a number of tokens"),
    (("--parallel", "tp=2", "--stack", "megatron"), "megatron-lm"),
    (("--parallel", "tp=2", "--precision", "bf8"), "is not one of"),
])  # fmt: skip
def test_wrong_words_are_refused_in_one_line_that_says_what_would_be_right(words, message):
    done = CliRunner().invoke(application(), [*PLAN, *words])
    assert isinstance(done.exception, NearpeakError), done.output
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


EXPERTS = ("plan", "train", "qwen3-30b-a3b", "--on", "8xh100_sxm", "--sequence", "512", "--global-batch", "8",
           "--parallel", "ep=8,zero=1", "--json")  # fmt: skip


def loaded(load):
    done = CliRunner().invoke(application(), [*EXPERTS, "--expert-load", load])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_experts_that_are_loaded_unevenly_take_longer_and_more_memory(tmp_path):
    file = tmp_path / "load.csv"
    file.write_text(",".join(["0.3", *["0.1"] * 127]), "utf-8")
    plans = [loaded(load) for load in ("balanced", "uniform", str(file), "zipf exponent=0.8")]
    assert plans[2]["plan"]["expert_load"].startswith("histogram weights=1000000,333333,")
    for less, more in ((0, 1), (1, 3), (0, 2)):
        assert plans[less]["time"]["step_s"] < plans[more]["time"]["step_s"]
    peaks = [plan["memory"][0]["allocated_bytes"] for plan in plans]
    assert peaks[0] <= peaks[1] < peaks[3]


@pytest.mark.parametrize(("model", "load", "message"), [
    ("qwen3-30b-a3b", "zip", "is not balanced, uniform"), ("llama-3.2-1b", "uniform", "has no experts; leave it out"),
    ("qwen3-30b-a3b", "zipf slope=1", "no option 'slope'"), ("qwen3-30b-a3b", "weights.csv", "holds 127 numbers, but"),
    ("qwen3-30b-a3b", "none.csv", "one of them above 0"), ("qwen3-30b-a3b", "below.csv", "must be at least 0"),
])  # fmt: skip
def test_a_load_that_is_none_is_refused(model, load, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, first, count in (("weights", 1, 127), ("none", 0, 128), ("below", -1, 128)):
        (tmp_path / f"{name}.csv").write_text(f"{first} " + f"{max(first, 0)} " * (count - 1), "utf-8")
    done = CliRunner().invoke(application(), ["plan", "train", model, *EXPERTS[3:], "--expert-load", load])
    assert isinstance(done.exception, SpecError), done.output
    assert message in str(done.exception)


def test_devices_without_units_for_bf16_train_in_fp16_unless_stated():
    words = ("plan", "train", "llama-3.2-1b", "--on", "8xv100_sxm", "--sequence", "512", "--global-batch", "16",
             "--parallel", "tp=2,zero=1", "--json")  # fmt: skip
    usual, stated = (
        json.loads(CliRunner().invoke(application(), [*words, *more]).stdout) for more in ((), ("--precision", "bf16"))
    )
    assert (usual["plan"]["precision"], stated["plan"]["precision"]) == ("fp16", "bf16")
    assert usual["time"]["step_s"] < stated["time"]["step_s"]


def test_a_cluster_of_several_nodes_needs_a_network():
    done = CliRunner().invoke(application(), ["plan", "train", "llama-3.2-1b", "--on", "16xh100_sxm"])
    assert isinstance(done.exception, SpecError)
    assert "--fabric" in str(done.exception)


@pytest.mark.parametrize("text", [
    "tp=8,pp=2,dp=4,micro=2,schedule=interleaved:4,sharding=zero1,recompute=selective,sp",
    "dp=64,micro=1,sharding=fsdp,framework=fsdp2,compiled,dp_overlap=off",
])  # fmt: skip
def test_the_words_of_a_plan_state_the_same_plan(text):
    plan = training_plan_of(text, 64, sequence=1024, global_batch=128)
    assert training_plan_of(plan_words(plan), 64, sequence=1024, global_batch=128) == plan


def test_a_plan_without_words_is_one_device():
    assert plan_words(TrainingPlan(micro_batch=1, global_batch=1, sequence=8)) == "micro=1"


def test_the_farm_answers_for_a_plan():
    payload = {"model": "llama-3.2-1b", "on": "8xh100_sxm", "parallel": "tp=2,zero=1", "sequence": 2048}
    KINDS["plan"].check(payload)
    assert KINDS["plan"].run(payload)["time"]["step_s"] > 0
    with pytest.raises(SpecError, match="--fabric"):
        KINDS["plan"].check({**payload, "on": "16xh100_sxm"})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--precision", "fp9"), "precision 'fp9': not known"),
        (("--tokens-per-step", "4M"), "both state the batch; give one"),
        (("--parallel", "pp=5,dp=2"), "tp × pp × cp = 5 does not divide 8 devices; tp=1 would"),
    ],
)
def test_contradictions_are_refused_in_one_line(words, says):
    done = CliRunner().invoke(application(), [*PLAN, *words])
    assert isinstance(done.exception, SpecError)
    assert says.split(";")[0] in str(done.exception)


def test_a_device_without_the_products_of_a_recipe_is_refused():
    words = ("plan", "train", "llama-3.2-1b", "--on", "8xa100_sxm_80gb", "--precision", "fp8-current")
    done = CliRunner().invoke(application(), [*words, "--parallel", "tp=2"])
    assert "a100_sxm_80gb: has no fp8-current products" in str(done.exception)


def test_a_step_of_less_than_a_sequence_is_refused_and_a_search_takes_a_multiple_of_its_devices():
    with pytest.raises(SpecError, match="less than a sequence of 4,096"):
        check_batch(100.0, 4096, 0)
    assert batch_of(4e6, 8192, 64) % 64 == 0
    assert batch_of(8 * 4096, 4096, 2048) == 8


@pytest.mark.parametrize(
    ("step_s", "parts", "items"),
    [(0, [], "token_count"), (1, [{"name": "host", "time_s": "x"}], "token_count"), (1, [], "count")],
)
def test_a_file_that_is_no_plan_is_refused(planned, step_s, parts, items):
    before = json.dumps({"time": {"step_s": step_s, "parts": parts, items: 4096}})
    with pytest.raises(SpecError, match="is no JSON of 'nearpeak plan train --json'"):
        difference_of(planned, before, "before.json")


@pytest.mark.parametrize("items", ["token_count", "item_count"])
def test_a_plan_of_tokens_or_images_is_compared_with_one_that_takes_as_long(planned, items):
    before = json.dumps({"time": {"step_s": planned.time.step_s, "parts": [], items: planned.time.token_count}})
    assert difference_of(planned, before, "before.json").lead.endswith("now: as long as before.")


@pytest.fixture(scope="module")
def planned():
    plan = TrainingPlan(dp=8, micro_batch=1, global_batch=8, sequence=512)
    return plan_training("llama-3.2-1b", cluster_of("8xh100_sxm"), plan, with_edits=False)


def test_a_plan_that_does_not_fit_is_told_what_would():
    words = ("plan", "train", "llama-3-8b", "--on", "8xh100_sxm", "--parallel", "tp=2", "--text")
    text = " ".join(CliRunner().invoke(application(), words).stdout.split())
    assert "does not fit" in text
    assert "sharding none → zero1" in text
    assert "tp_overlap on" in text
    assert "sp on" in text


def test_a_cluster_beyond_all_is_refused():
    words = ("plan", "train", "llama-3-8b", "--on", "99999999999xh100_sxm", "--fabric", "ib400", "--parallel", "tp=8")
    assert "at most 1,048,576 devices" in str(CliRunner().invoke(application(), words).exception)


def test_a_stack_file_keeps_the_memory_rules_of_its_framework_and_writes_traces(tmp_path):
    file, folder = tmp_path / "mine.toml", tmp_path / "traces"
    file.write_text(stack_text(stack_of("fsdp-composer")), "utf-8")
    words = ("plan", "train", "llama-3.2-1b", "--on", "8xh100_sxm", "--sequence", "512", "--global-batch", "16",
             "--parallel", "zero=3", "--json", "--stack")  # fmt: skip
    own, shipped = (
        json.loads(CliRunner().invoke(application(), [*words, stack, *more]).stdout)
        for stack, more in ((str(file), ("--chakra-out", str(folder))), ("fsdp-composer", ()))
    )
    assert own["plan"] == shipped["plan"]
    assert own["memory"] == shipped["memory"]
    assert len(list(folder.glob("*.et"))) == 8


def test_plans_in_python_take_the_units_of_the_device_and_refuse_a_load_of_no_experts():
    cluster = cluster_of("8xv100_sxm")
    plan = stated_plan("tp=2,zero=1", cluster, stack="megatron-lm", sequence=512, global_batch=16)
    assert plan.precision == "fp16"
    with pytest.raises(SpecError, match=r"llama-3\.2-1b has no experts"):
        plan_training("llama-3.2-1b", cluster, replace(plan, expert_load="uniform"), with_edits=False)
