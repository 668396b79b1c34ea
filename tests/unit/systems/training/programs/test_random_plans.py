"""Rank programs of random plans: products are shared out exactly, or one line says which degree does not divide."""

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.systems.training.programs.stage_program import rank_program, rank_programs
from nearpeak.systems.transformer.layout import Layout

LLAMA = shape_of("llama-3-8b")
KINDS = ("dp", "edp", "dp_shard", "dp_replica")


def product_flop(calls):
    cases = [(call, dict(call.case.axes)) for call in calls if call.case and call.case.op == "gemm"]
    return sum(call.count * 2 * axes["batch"] * prod(axes[axis] for axis in "mnk") for call, axes in cases)


def step_flop(programs):
    return sum(product_flop((*program.forward, *program.backward, *program.weight)) for program in programs)


ALONE = step_flop([rank_program(LLAMA, TrainingPlan(micro_batch=1, global_batch=1, sequence=2048))])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    tp=st.sampled_from([1, 2, 4, 8]), cp=st.sampled_from([1, 2, 4]), pp=st.integers(1, 8), dp=st.integers(1, 4),
    chunk_count=st.integers(1, 3), sequence_parallel=st.booleans(),
    sharding=st.sampled_from(["none", "zero1", "zero2", "zero3", "fsdp"]),
    framework=st.sampled_from(["megatron-lm", "deepspeed", "fsdp2"]),
)  # fmt: skip
def test_ranks_share_the_products_of_one_device(dp, sharding, framework, **degrees):
    if (framework, sharding) == ("fsdp2", "zero2"):
        sharding = "zero1"
    plan = TrainingPlan(
        dp=dp, sharding=sharding, framework=framework, micro_batch=1, global_batch=dp, sequence=2048, **degrees
    )
    programs = rank_programs(LLAMA, plan, layout=Layout(tp=plan.tp, cp=plan.cp))
    assert plan.tp * plan.cp * step_flop(programs) == ALONE
    moved = [call.transfer for p in programs for call in (*p.micro_batch_calls(), *p.gradient, *p.optimizer)]
    dims = {transfer.dim for transfer in moved if transfer}
    assert ("pp" in dims) == (plan.pp > 1)
    assert bool(dims & set(KINDS)) == (plan.dp * plan.cp > 1)
    assert all(transfer.bytes > 0 for transfer in moved if transfer)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["llama-3-70b", "qwen3-30b-a3b", "deepseek-v3", "gpt2", "falcon-7b"]),
    tp=st.integers(1, 12), cp=st.integers(1, 6), pp=st.integers(1, 130), ep=st.integers(1, 12), etp=st.integers(1, 3),
    sequence=st.integers(1, 4096), sequence_parallel=st.booleans(),
)  # fmt: skip
def test_a_plan_works_or_is_refused_in_one_line(name, **degrees):
    found: list[SpecError] = []
    try:
        plan = TrainingPlan(dp=2, micro_batch=1, global_batch=2, **degrees)
        assert rank_program(shape_of(name), plan, stage=plan.pp - 1).parameter_count > 0
    except SpecError as error:
        found.append(error)
    assert not any("\n" in str(error) for error in found)
