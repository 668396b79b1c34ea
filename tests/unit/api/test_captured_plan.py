"""Plans of captured models: one device, replicas, shards, their memory, and refusals that say what works."""

import json
from dataclasses import replace
from math import fsum
from pathlib import Path

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from nearpeak.api.training.captured_plan import is_captured, plan_captured  # noqa: E402
from nearpeak.cli import application  # noqa: E402
from nearpeak.core.systems.plan_words import plan_words  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import SpecError, UnknownNameError  # noqa: E402
from nearpeak.frontends.files.saved_workload import save_text  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.prediction.case_prediction import predict_case  # noqa: E402
from nearpeak.reports.systems.training_plan_report import document_of  # noqa: E402
from nearpeak.systems.training.stack_files import stack_of  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402
from nearpeak.targets.clusters import cluster_of  # noqa: E402

BATCH = 4


@pytest.fixture(scope="module")
def step():
    def build():
        block = torch.nn.Sequential(torch.nn.Conv2d(32, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU())
        return torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), block, torch.nn.Flatten(), torch.nn.Linear(4608, 1000))

    images = (torch.empty(BATCH, 3, 16, 16),), {}
    workload = capture_torch(build, lambda: images, CaptureOptions(step="train"), name="tiny")
    return replace(workload, origin={**workload.origin, "batch": str(BATCH), "inputs": "pixel_values 4×3×16×16"})


def test_one_device_takes_the_predicted_kernels_of_the_step_and_the_host_times_of_the_stack(step):
    planned = plan_captured(step, cluster_of("h100_sxm"), "dp=1")
    parts, device = planned.time.parts_s, target_of("h100_sxm")
    kernels_s = fsum(call.call_count * predict_case(call.case, device).time_s for call in step.calls)
    found_s = parts["proved bound"] + parts["kernels below peak"] + parts["optimizer"]
    assert found_s == pytest.approx(kernels_s, rel=1e-9)
    assert planned.time.step_s == pytest.approx(kernels_s + parts["host"], rel=1e-9)
    assert parts["host"] >= stack_of("pytorch-eager").step_s
    assert planned.scaling_ratio is None


def test_replicas_scale_by_the_time_of_one_device_and_count_images(step):
    one = plan_captured(step, cluster_of("h100_sxm"), "dp=1")
    for words, name in (("dp=8", "8xh100_sxm"), ("sharding=fsdp", "8xh100_sxm"), ("zero=1", "8xh100_sxm")):
        planned = plan_captured(step, cluster_of(name), words)
        time = planned.time
        assert fsum(part.time_s for part in time.parts) == pytest.approx(time.step_s, rel=1e-9)
        assert time.low_s <= time.step_s <= time.high_s
        assert planned.tokens_per_s == pytest.approx(8 * BATCH / time.step_s)
        assert planned.scaling_ratio == pytest.approx(one.time.step_s / time.step_s)
        assert "images/s, scaling efficiency" in document_of(planned).lead


def test_reductions_between_nodes_and_after_the_pass_cost_more(step):
    near, far, late = (
        plan_captured(step, cluster_of(*where), words).time
        for where, words in (
            (("8xh100_sxm",), "dp=8"), (("64xh100_sxm", "ib400"), "dp=64"), (("8xh100_sxm",), "dp=8,dp_overlap=off")
        )
    )  # fmt: skip
    assert far.parts_s["exposed dp"] > near.parts_s["exposed dp"] > 0
    assert late.parts_s["exposed dp"] >= near.parts_s["exposed dp"]
    assert far.parts_s["straggler"] > 0 == near.parts_s["straggler"]


def test_micro_batches_follow_from_the_global_batch(step):
    twice = plan_captured(step, cluster_of("2xh100_sxm"), "dp=2", global_batch=4 * BATCH)
    assert twice.plan.micro_batch_count == 2
    assert twice.time.token_count == 4 * BATCH
    assert twice.scaling_ratio < 1


@pytest.mark.parametrize(
    "words",
    [
        "pp=2,dp=4",
        "spatial=2x1,dp=4",
        "spatial=2x2,pp=2,dp=1",
        "pp=2,zero=1,dp=4",
        "pp=2,dp=4,schedule=interleaved:2",
        "pp=2,dp=4,schedule=dualpipev",
        "recompute=full,sharding=fsdp",
        "pp=2,dp=2,spatial=2x1,recompute=full",
    ],
)
def test_parts_of_shared_steps_add_up_and_the_words_state_the_plan(step, words):
    planned = plan_captured(step, cluster_of("8xh100_sxm"), words, global_batch=16 * BATCH)
    time = planned.time
    assert fsum(part.time_s for part in time.parts) == pytest.approx(time.step_s, rel=1e-9)
    assert min(part.time_s for part in time.parts) > -1e-9 * time.step_s
    assert len(planned.memory) == planned.plan.pp
    again = plan_captured(step, cluster_of("8xh100_sxm"), plan_words(planned.plan).replace(",micro=4", ""),
                          global_batch=16 * BATCH)  # fmt: skip
    assert (again.plan, again.time.step_s) == (planned.plan, time.step_s)


def test_the_batch_of_a_step_does_not_depend_on_the_plan_unless_stated(step):
    for words in ("dp=4", "pp=4", "pp=2,dp=2", "spatial=2x1,dp=2", "sharding=fsdp"):
        planned = plan_captured(step, cluster_of("4xh100_sxm"), words)
        assert planned.plan.global_batch == 4 * BATCH
        assert any("--batch on each device whatever the plan, 16 images" in note for note in planned.time.notes)
    stated = plan_captured(step, cluster_of("4xh100_sxm"), "pp=4", global_batch=8 * BATCH)
    assert not any("--global-batch" in note for note in stated.time.notes)


def test_recomputation_trades_time_for_memory_and_stands_among_the_changes(step):
    plain, again = (plan_captured(step, cluster_of("2xh100_sxm"), f"pp=2,stages=2:2{words}", global_batch=8 * BATCH)
                    for words in ("", ",recompute=full"))  # fmt: skip
    assert again.time.step_s >= plain.time.step_s
    assert again.fullest.parts["activations"] <= plain.fullest.parts["activations"]
    assert any("recompute none → full" in edit.change for edit in plain.edits)
    assert any("schedule 1f1b → interleaved" in edit.change for edit in plain.edits)


def test_degrees_that_need_a_transformer_are_refused_before_the_model_is_captured(monkeypatch):
    monkeypatch.setattr("nearpeak.api.training.captured_plan._captured", lambda *_: pytest.fail("captured"))
    refusals = {
        "tp=2": "tp=2 needs the shape", "cp=2": "cp=2 needs the shape", "pp=2,schedule=nonsense": "nonsense",
        "recompute=selective": "recompute=full checkpoints its blocks",
        "pp=2,schedule=dualpipev": "needs at least 2 p = 4 micro-batches, got 2",
    }  # fmt: skip
    for words, message in refusals.items():
        with pytest.raises(SpecError, match=message):
            plan_captured("resnet-50", cluster_of("2xh100_sxm"), words, batch=4)


def test_stages_are_those_of_the_shortest_longest_one(step):
    found = plan_captured(step, cluster_of("2xh100_sxm"), "pp=2").plan.stage_layer_count
    times = {
        counts: plan_captured(step, cluster_of("2xh100_sxm"), f"pp=2,stages={counts}").time
        for counts in ("1:3", "2:2", "3:1")
    }
    longest = {counts: max(stage.forward_s + stage.backward_s for stage in time.stages)
               for counts, time in times.items()}  # fmt: skip
    assert ":".join(map(str, found)) == min(longest, key=longest.__getitem__)
    other = max(longest, key=lambda counts: longest[counts])
    edits = plan_captured(step, cluster_of("2xh100_sxm"), f"pp=2,stages={other}").edits
    assert any(edit.change.startswith("stages ") and edit.plan.stage_layer_count == found for edit in edits)


def test_the_search_recomputes_only_where_nothing_fits_otherwise(step):
    planned = plan_captured(step, cluster_of("4xh100_sxm"), "")
    assert planned.plan.recompute == "none"
    assert all(result.plan.recompute == "none" for result in planned.search.front)


def test_the_search_times_what_bounds_leave_open_and_returns_the_fastest(step):
    planned = plan_captured(step, cluster_of("4xh100_sxm"), "")
    assert planned.search is not None
    assert planned.time.step_s == pytest.approx(planned.search.best.step_s)
    assert planned.search.executed_count <= planned.search.fitting_count <= planned.search.legal_count
    for words in ("dp=4", "pp=2,dp=2", "spatial=2x1,dp=2"):
        stated = plan_captured(step, cluster_of("4xh100_sxm"), words, global_batch=4 * BATCH)
        assert stated.time.step_s >= planned.time.step_s
    assert all(edit.plan.rank_count == 4 for edit in planned.edits)


def test_tiles_are_set_beside_replicas_of_as_many_images(step):
    planned = plan_captured(step, cluster_of("4xh100_sxm"), "spatial=2x1,dp=2")
    assert "--batch 2 --parallel dp=4" in str(document_of(planned).blocks)
    assert "Compare with replicas" not in str(document_of(plan_captured(step, cluster_of("4xh100_sxm"), "dp=4")).blocks)


def test_a_search_without_a_price_has_no_column_of_prices_and_no_change_of_nothing(step):
    def table(planned, name):
        return next((block for block in document_of(planned).blocks if getattr(block, "name", "") == name), None)

    free, priced = (plan_captured(step, cluster_of("2xh100_sxm"), "", usd_per_device_hour=usd) for usd in (None, 2.5))
    assert len(table(priced, "frontier").columns) == len(table(free, "frontier").columns) + 1
    small = replace(free, edits=tuple(replace(edit, gain_ratio=4e-4) for edit in free.edits))
    assert free.edits
    assert table(small, "changes") is None


def test_tf32_runs_products_of_fp32_on_matrix_units(step):
    plain, rounded = (plan_captured(step, cluster_of("h100_sxm"), "dp=1", precision=p) for p in ("", "tf32"))
    assert rounded.plan.precision == "tf32"
    assert rounded.time.step_s < plain.time.step_s
    lower = replace(step, origin={**step.origin, "autocast": "bf16"})
    with pytest.raises(SpecError, match="--precision tf32, but the step was captured in bf16"):
        plan_captured(lower, cluster_of("h100_sxm"), "dp=1", precision="tf32")


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ("tp=2", {}, "tp=2 needs the shape of a transformer; a captured step takes dp and pp, tp=1; branches=2 may"),
        ("cp=2", {}, "cp=2 needs the shape of a transformer; a captured step takes dp and pp, cp=1; spatial=2 may"),
        ("ep=2", {}, "ep is planned for language models given by shape; a captured step takes dp, pp, spatial"),
        ("pp=8", {}, "pp=8 stages, but only 4 numbered blocks; pp=4 would"),
        ("pp=2,stages=1:1", {}, "stages=1:1 add up to 2, but the step has 4 numbered blocks, 0 to 3"),
        ("pp=2,stages=1:1:1", {}, "stages=1:1:1: states layers of 3 stages for pp=2"),
        ("pp=2,schedule=dualpipe", {}, "schedule=dualpipe holds two copies of each stage, planned for language models"),
        ("pp=4,schedule=interleaved:2", {}, "pp=4 stages of 2 chunks each, but only 4 numbered blocks; pp=2 would"),
        ("pp=1,schedule=interleaved:2", {}, "schedule=interleaved:2 on one stage; state pp=2 or more"),
        ("spatial=2x", {}, "spatial='' must be a whole number of at least 1"),
        ("spatial=8", {}, "along the height, tile 7 of 8 reads beyond its direct neighbours"),
        ("branches=2", {}, "at most 1 run beside each other; its graph is a chain"),
        ("branches=2,pp=2", {}, "branches=2 is planned with dp alone"),
        ("spatial=3x3,dp=2", {}, "9 tiles of a replica do not divide 8 devices"),
        (
            "recompute=selective",
            {},
            "recompute=selective names no calls of a captured step; recompute=full checkpoints",
        ),
        ("compiled", {}, "compiled is planned for"),
        ("framework=megatron-lm", {}, "framework=megatron-lm with sharding=none is not planned"),
        ("zero=2", {}, "sharding=zero2 is not planned"),
        ("micro=2", {}, "micro=2, but the step has --batch 4"),
        ("dp=4", {}, "dp=8 would be right"),
        ("dp=8", {"batch": 3}, "--batch 3, but the step was captured with 4"),
        ("dp=8", {"precision": "bf16"}, "but the step was captured in fp32"),
    ],
)
def test_what_ranks_cannot_share_of_a_step_is_refused_in_a_line(step, words, options, message):
    known = replace(step, origin={**step.origin, "dtype": "fp32"})
    with pytest.raises(SpecError, match=message) as refusal:
        plan_captured(known, cluster_of("8xh100_sxm"), words, **options)
    assert "\n" not in str(refusal.value)


def test_a_model_that_is_not_captured_yet_needs_a_batch():
    with pytest.raises(SpecError, match="resnet-50: a captured step needs --batch"):
        plan_captured("resnet-50", cluster_of("8xh100_sxm"), "dp=8")
    with pytest.raises(SpecError, match="--precision mxfp8 is not captured; fp32, tf32, bf16 or fp16 would work"):
        plan_captured("resnet-50", cluster_of("8xh100_sxm"), "dp=8", batch=2, precision="mxfp8")


def test_only_models_without_known_layers_are_captured(step, tmp_path: Path):
    saved = tmp_path / "step.json"
    saved.write_text(save_text(step))
    names = ("resnet-50", "hf:resnet", str(saved), "llama-3-8b")
    assert [is_captured(name) for name in names] == [True, True, True, False]
    with pytest.raises(UnknownNameError, match="nearest names"):
        is_captured("nonsense")


def test_a_saved_step_is_planned_by_the_command(step, tmp_path: Path):
    saved = tmp_path / "step.json"
    saved.write_text(save_text(step))

    def run(*words):
        return CliRunner().invoke(application(), ["plan", "train", str(saved), "--on", "8xh100_sxm", *words])

    record = json.loads(run("--parallel", "dp=8", "--json").stdout)
    assert record["item"] == "images"
    assert record["items_per_s"] == pytest.approx(record["time"]["item_count"] / record["time"]["step_s"])
    assert record["scaling_ratio"] < 1
    assert not any("token" in name for name in record)
    refused = run("--parallel", "dp=8", "--optimizer", "kfac")
    assert refused.exit_code != 0
    assert "--optimizer is for language models" in str(refused.exception)


def test_ranks_of_branches_idle_in_a_part_of_their_own():
    class Towers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = (
                torch.nn.Sequential(*(torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(count))) for count in (4, 2)
            )

        def forward(self, x):
            return self.left(x) * self.right(x + 1)

    images = (torch.empty(BATCH, 64, 64, 64),), {}
    workload = capture_torch(Towers, lambda: images, CaptureOptions(step="train"), name="towers")
    workload = replace(workload, origin={**workload.origin, "batch": str(BATCH)})
    time = plan_captured(workload, cluster_of("2xh100_sxm"), "branches=2").time
    assert fsum(part.time_s for part in time.parts) == pytest.approx(time.step_s, rel=1e-9)
    assert min(part.time_s for part in time.parts) > -1e-9 * time.step_s
    assert time.parts_s["branch idle"] > 0 == time.parts_s["imbalance"]
