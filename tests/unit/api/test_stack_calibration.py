"""Tests of host times fitted to measured steps of plans."""

from dataclasses import replace

import pytest

from nearpeak.api.training.stack_calibration import calibrate_stack, measured_steps, stack_text
from nearpeak.api.training.training_time import training_time
from nearpeak.base.input_files import toml_table
from nearpeak.errors import SpecError
from nearpeak.systems.training.stack_files import parse_stack, stack_of
from nearpeak.targets.clusters import cluster_of

TABLE = {
    "model": ["gpt2", "gpt2"], "dp": [1, 1], "micro_batch": [1, 2], "global_batch": [2, 8], "sequence": [512, 512],
    "precision": ["bf16", "bf16"], "dp_overlap": ["true", "false"], "step_ms": [90, 200],
}  # fmt: skip


def test_rows_become_plans():
    steps = measured_steps(TABLE)
    assert [step.step_s for step in steps] == [0.09, 0.2]
    assert steps[1].plan.micro_batch_count == 4
    assert not steps[1].plan.dp_overlap


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step_ms": None}, "column `model` and one of step_s or step_ms"),
        ({"depth": [1, 1]}, "'depth' is no field of a plan"),
        ({"sequence": None}, "'sequence' is missing"),
        ({"step_ms": [0, 1]}, "row 1: step_ms is 0"),
        ({"micro_batch": [1.5, 2]}, "must be a whole number"),
        ({"dp_overlap": ["maybe", "no"]}, "must be true or false"),
    ],
)
def test_tables_that_state_no_plans_are_refused(changes, words):
    table = {name: column for name, column in (TABLE | changes).items() if column is not None}
    with pytest.raises(SpecError, match=words):
        measured_steps(table)


def test_fit_finds_the_host_times_of_a_made_up_machine():
    cluster, start = cluster_of("h100_sxm"), stack_of("pytorch-eager")
    truth = replace(start, launch_s=40e-6, micro_batch_s=3e-3)
    steps = [
        replace(step, step_s=training_time(step.model, step.plan, cluster, truth).step_s)
        for step in measured_steps(TABLE)
    ]
    fit = calibrate_stack(steps, cluster, start, "made up")
    assert fit.after_ratio < 0.02 < fit.before_ratio
    assert fit.stack.launch_s == pytest.approx(40e-6, rel=0.1)


def test_text_of_a_stack_reads_back():
    stack = replace(stack_of("megatron-lm"), name="mine", launch_s=33e-6, source='a "quoted" source')
    read = parse_stack("mine", toml_table(stack_text(stack)))
    assert replace(read, launch_s=stack.launch_s, graph_launch_s=0.0, micro_batch_s=stack.micro_batch_s) == stack
    assert read.launch_s == pytest.approx(stack.launch_s)
