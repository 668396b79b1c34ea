"""Training plans with their memory, the nearest plan that fits, and refusals that say what is missing."""

import pytest

from nearpeak.api.job_plan import plan_training
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.reports.systems.training_plan_report import document_of
from nearpeak.targets.clusters import cluster_of


def test_a_plan_that_does_not_fit_comes_with_the_nearest_that_does() -> None:
    plan = TrainingPlan(dp=8, micro_batch=1, global_batch=64, sequence=4096)
    planned = plan_training("llama-3-8b", cluster_of("8xh100_sxm"), plan, with_edits=False)
    assert not planned.fullest.fits
    assert planned.nearest_change == "sharding none → zero1"
    assert f"nearest plan that fits: {planned.nearest_change}" in str(document_of(planned))


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
