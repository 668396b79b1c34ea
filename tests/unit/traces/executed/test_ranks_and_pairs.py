"""Jobs of several ranks, and pairs of traces before and after a remedy: names, gains, silence, bounds."""

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_ranks as ranks
from benchmarks import launch_pairs
from benchmarks import planted_ranks as scored

from nearpeak.api.trace_analysis import analyze_trace


@pytest.mark.parametrize("seed", range(3))
def test_a_late_rank_is_named_with_what_the_others_wait(seed, tmp_path):
    job = ranks.job(seed, late=True)
    found = next(one for one in scored.reported(job, tmp_path).findings if one.id == "comm.straggler")
    truth_s = (ranks.step_ns(job) - ranks.step_ns(ranks.cured(job))) * 1e-9
    assert found.key == f"rank {job.late}"
    assert found.gain_s == pytest.approx(truth_s, rel=0.15)
    assert found.gain_low_s <= found.gain_s <= found.gain_high_s


def test_clocks_that_differ_make_no_rank_late(tmp_path):
    report = scored.reported(ranks.job(5, late=False), tmp_path)
    assert "comm.straggler" not in {one.id for one in report.findings}


def test_one_rank_of_several_says_that_the_others_are_needed(tmp_path):
    report = analyze_trace(ranks.write(ranks.job(1, late=True), tmp_path)[1])
    reason = next(one.reason for one in report.abstentions if one.id == "comm.straggler")
    assert "--rank" in reason


PAIRS = {
    "one CUDA graph per step": launch_pairs.graph_pair,
    "twice the batch, per sample": launch_pairs.batch_pair,
    "cache tensors that each step creates again": launch_pairs.caching_pair,
}


@pytest.mark.parametrize("remedy", PAIRS)
def test_what_a_remedy_gives_is_what_the_changed_program_takes_less(remedy, monkeypatch):
    monkeypatch.setattr(launch_pairs, "SEEDS", range(3))
    gains = list(launch_pairs._gains(remedy, PAIRS[remedy]))
    assert gains
    for said, executed, step in gains:
        assert said == pytest.approx(executed, rel=0.15)
        assert executed <= said + 0.01 * step
