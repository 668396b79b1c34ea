"""Chakra traces of a plan: a file per rank with predicted kernels, and the groups of its collectives."""

import json

import pytest

from nearpeak.api.training.chakra_traces import write_chakra_traces
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError
from nearpeak.targets.clusters import cluster_of

SHAPE = TransformerShape(name="small", layer_count=4, hidden=1024, head_count=8, kv_head_count=8, head_width=128,
                         ffn=4096, is_gated=True, vocabulary=32_000)  # fmt: skip
PLAN = TrainingPlan(tp=2, pp=2, dp=2, micro_batch=1, global_batch=8, sequence=512)


def test_every_rank_has_a_trace_and_every_group_its_ranks(tmp_path):
    paths = write_chakra_traces(SHAPE, PLAN, cluster_of("8xh100_sxm"), tmp_path / "out", "megatron-lm")
    assert [path.name for path in paths] == [*(f"small.{rank}.et" for rank in range(8)), "small.json"]
    assert paths[0].read_bytes() != paths[1].read_bytes(), "ranks differ in their groups"
    groups = json.loads(paths[-1].read_text()).values()
    assert [0, 1] in groups
    assert [0, 2] in groups
    assert all(set(ranks) <= set(range(8)) for ranks in groups)


def test_kernels_run_at_the_clock_that_the_plan_sustains(tmp_path, monkeypatch):
    traces = []
    for clock in (1.0, 0.5):
        monkeypatch.setattr("nearpeak.api.training.training_time.sustained_clock_ratio", lambda *_, clock=clock: clock)
        paths = write_chakra_traces(SHAPE, PLAN, cluster_of("8xh100_sxm"), tmp_path / f"{clock}", "megatron-lm")
        traces.append(paths[0].read_bytes())
    assert traces[0] != traces[1]


def test_a_plan_of_another_size_is_refused(tmp_path):
    with pytest.raises(SpecError, match="8 ranks, the cluster 16 devices"):
        write_chakra_traces(SHAPE, PLAN, cluster_of("16xh100_sxm", "ib400"), tmp_path)
