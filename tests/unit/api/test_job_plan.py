"""Training plans with their memory, the nearest plan that fits, and refusals that say what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearpeak.api.training.job_plan import plan_training
from nearpeak.api.training.search_bounds import program_bound
from nearpeak.api.training.training_time import training_time
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.reports.systems.training_plan_report import document_of
from nearpeak.systems.training.schedule_file import schedule_text
from nearpeak.systems.training.schedules import schedule_of
from nearpeak.targets.clusters import cluster_of


def test_a_plan_that_does_not_fit_comes_with_the_nearest_that_does() -> None:
    plan = TrainingPlan(dp=8, micro_batch=1, global_batch=64, sequence=4096)
    planned = plan_training("llama-3-8b", cluster_of("8xh100_sxm"), plan, with_edits=False)
    assert not planned.fullest.fits
    assert planned.nearest_change == "sharding none → zero1"
    assert f"nearest plan that fits: {planned.nearest_change}" in str(document_of(planned))


@pytest.mark.parametrize("words", ["dp=8", "tp=2,dp=4,sp", "tp=2,pp=2,dp=2,schedule=interleaved:4,sp", "pp=4,dp=2"])
def test_the_bound_of_a_search_lies_just_below_the_step(words: str) -> None:
    """At the clock that the board sustains, with the head's stage and the stragglers."""
    cluster = cluster_of("8xh100_sxm")
    plan = training_plan_of(words, 8, sequence=4096, global_batch=64)
    step_s = training_time("llama-3-8b", plan, cluster, "megatron-lm").step_s
    assert 0.93 < program_bound(shape_of("llama-3-8b"), cluster, "megatron-lm")(plan) / step_s <= 1


def test_a_plan_that_fits_needs_no_other() -> None:
    plan = TrainingPlan(tp=8, micro_batch=1, global_batch=8, sequence=2048, sequence_parallel=True)
    planned = plan_training("llama-3-8b", cluster_of("8xh100_sxm"), plan, with_edits=False)
    assert planned.fullest.fits
    assert planned.nearest_change == ""


def test_a_search_without_a_fitting_plan_says_what_the_least_needs() -> None:
    with pytest.raises(SpecError, match=r"the least, tp=2,.*, needs \d+\.?\d* GB a device, which has 85.9 GB"):
        plan_training("llama-3-70b", cluster_of("2xh100_sxm"), sequence=4096, global_batch=8)


def test_block_scaled_products_are_refused_where_a_device_has_none() -> None:
    plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=8, sequence=2048, precision="mxfp8")
    with pytest.raises(SpecError, match="h100_sxm: has no mxfp8 products"):
        plan_training("llama-3-8b", cluster_of("8xh100_sxm"), plan)


def test_a_second_order_optimizer_is_stated_beside_the_step() -> None:
    plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=64, sequence=4096, sharding="zero1")
    cluster = cluster_of("8xh100_sxm")
    often, rare = (
        plan_training("llama-3-8b", cluster, plan, optimizer=words, with_edits=False)
        for words in ("kfac", "kfac,factors=10,inverses=1000")
    )
    assert often.time.step_s == rare.time.step_s
    assert often.second_order is not None
    assert rare.second_order is not None
    assert rare.second_order.factor_s * 10 == pytest.approx(often.second_order.factor_s)
    assert rare.second_order.exposed_s == 0.0, "1,000 steps hide the inverses"
    assert "kfac adds" in document_of(often).lead
    with pytest.raises(SpecError, match="leaves none of 4"):
        plan_training("llama-3-8b", cluster, plan, optimizer="kfac,grid=9", with_edits=False)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_a_schedule_of_a_file_plans_as_the_registered_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.csv"
    plan = TrainingPlan(pp=4, dp=2, micro_batch=1, global_batch=16, sequence=2048, schedule=name, sharding="zero1")
    path.write_text(schedule_text(schedule_of(name, 4, 8)))
    cluster = cluster_of("8xh100_sxm")
    registered, stated = (
        plan_training("llama-3-8b", cluster, replace(plan, schedule=words), with_edits=False)
        for words in (name, str(path))
    )
    assert stated.time.step_s == registered.time.step_s
    assert stated.fullest.used_bytes == pytest.approx(registered.fullest.used_bytes, rel=0.02)
    with pytest.raises(SpecError, match="has 4 ranks, 8 micro-batches and 4 stages; the plan has 4, 16 and 4"):
        plan_training("llama-3-8b", cluster, replace(plan, schedule=str(path), global_batch=32), with_edits=False)
