"""Real files of other tools, where they are at hand beside the repository: their published figures come out."""

import pytest
from tests.samples import SAMPLES, needs_samples
from tests.unit.store.importers.documents import runs_of

pytestmark = needs_samples


def timed(run, metric="time"):
    return [s for s in run.samples if s.metric.name == metric and s.values]


def test_nvbench_126_states_on_two_devices():
    runs = runs_of(SAMPLES / "nvbench" / "test_ref.json")
    assert [run.device.name for run in runs] == ["Quadro GV100", "Quadro GP100"]
    cold = [s for run in runs for s in timed(run) if s.testbed.policy["mode"] == "cold"]
    skipped = [s for run in runs for s in run.samples if s.outcome == "unsupported"]
    means = [s.values[0] for s in cold]
    assert (len(cold), len(skipped)) == (88, 38)
    assert sum(means) == pytest.approx(0.08384915855, rel=1e-9)
    assert (min(means), max(means)) == (pytest.approx(3.05725e-6, rel=1e-5), pytest.approx(6.66123e-3, rel=1e-5))


def test_pytest_benchmark_summary_of_22663_rounds():
    (run,) = runs_of(SAMPLES / "pytest_benchmark" / "v5_stats_only.json")
    (samples,) = run.samples
    assert samples.values == (pytest.approx(34.01e-6, rel=1e-4),)
    assert "22663 rounds" in samples.note
    assert run.revision is None
    assert run.branch == "main"


def test_onnxruntime_three_runs_and_fifteen_nodes():
    (run,) = runs_of(SAMPLES / "onnxruntime" / "tiny_cpu.json")
    whole, *nodes = run.samples
    assert (*whole.channels["warmup_s"], *whole.values) == pytest.approx((645e-6, 209e-6, 128e-6))
    assert sum(value for node in nodes for value in node.values) == pytest.approx(876e-6)


def test_trtexec_profile_of_26_layers():
    (run,) = runs_of(SAMPLES / "trtexec" / "resnet18_fp16.profile.json")
    layers = timed(run)
    assert len(run.samples) == 26
    assert sum(s.values[0] for s in layers) == pytest.approx(0.359424e-3, rel=1e-6)
    assert "21071 runs" in layers[0].note


@pytest.mark.parametrize(
    ("start", "run_s", "init_s", "batch"), [("AMD", 1695.611, 72.514, 8), ("Dell", 220.035, 178.768, 55296)]
)
def test_mlperf_training_scores_the_run_alone(start, run_s, init_s, batch):
    (path,) = (SAMPLES / "mlperf").glob(f"{start}*")
    (run,) = runs_of(path)
    assert timed(run)[0].values == (pytest.approx(run_s),)
    assert timed(run, "init_time")[0].values == (pytest.approx(init_s),)
    assert timed(run)[0].parameters["global_batch_size"] == batch


def test_mlperf_inference_keeps_percentile_and_rate():
    (run,) = runs_of(SAMPLES / "mlperf_power" / "xavier_nx_resnet50_ss_summary.txt")
    found = {s.metric.name: s.values[0] for s in run.samples}
    assert found["latency_p90"] == pytest.approx(3_070_554e-9)
    assert found["throughput"] == 326.25
    assert "Mean latency (ns)" in run.source.lost
