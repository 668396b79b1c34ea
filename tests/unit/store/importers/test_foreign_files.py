"""Importers of other tools' files: what they read, in SI units, what they say of what they leave out."""

import gzip
import json

import pytest
from tests.unit.store.importers import documents
from tests.unit.store.importers.documents import runs_of

from nearpeak.core.history.stored_run import Device, Revision
from nearpeak.errors import SpecError
from nearpeak.store.importers import IMPORTERS


def one(path, **given):
    (record,) = runs_of(path, **given)
    return record


def by_label(record):
    return {(s.label, s.metric.name, s.testbed.policy.get("mode", "")): s for s in record.samples}


def test_pytest_benchmark_keeps_samples_commit_and_machine(tmp_path):
    found = one(documents.pytest_benchmark(tmp_path))
    (samples,) = found.samples
    assert samples.values == (1e-5, 2e-5, 3e-5)
    assert dict(samples.parameters) == {"n": 3, "iterations": 4}
    assert (found.revision.sha, found.branch, found.device.name) == ("a" * 40, "dev", "A CPU")
    assert dict(found.stack)["python"] == "3.11.7"
    assert "benchmarks[].extra_info.note" in found.source.lost
    assert found.started_ns == 1_767_323_046_000_000_000


def test_a_summary_without_samples_keeps_its_median_and_says_so(tmp_path):
    (samples,) = one(documents.pytest_benchmark(tmp_path, data=False)).samples
    assert samples.values == (2e-5,)
    assert "summary of 3 rounds" in samples.note


def test_google_benchmark_takes_each_repetition_as_a_sample_and_keeps_errors(tmp_path):
    found = by_label(one(documents.google_benchmark(tmp_path)))
    assert found["BM_copy/8", "time", ""].values == pytest.approx((2e-6, 3e-6, 4e-6))
    assert found["BM_copy/8", "cpu_time", ""].values == pytest.approx((1.5e-6,) * 3)
    bad = found["BM_bad", "time", ""]
    assert (bad.values, bad.outcome, bad.note) == ((), "failed", "no device")
    (only, *_) = one(documents.google_benchmark(tmp_path, aggregates=True)).samples
    assert only.values == (2e-6,)
    assert "median" in only.note


def test_asv_spans_the_parameters_and_takes_units_from_the_file_beside_it(tmp_path):
    record = one(documents.asv(tmp_path))
    found = {s.label: s for s in record.samples}
    assert found["time_a.Suite.time_one(1, 'x')"].values == (1e-3, 1.1e-3)
    assert found["time_a.Suite.time_one(1, 'y')"].outcome == "failed"
    assert found["time_a.Suite.time_one(2, 'y')"].note.startswith("summary")
    assert (found["track_size"].metric.unit, found["peakmem_two"].metric.unit) == ("B", "B")
    assert "results.track_other (no unit)" in record.source.lost
    assert (record.revision.sha, dict(record.stack)) == ("b" * 40, {"python": "3.11", "numpy": "2.0"})


def test_nvbench_reads_sample_files_and_clocks_and_makes_a_run_per_device(tmp_path):
    first, second = runs_of(documents.nvbench(tmp_path))
    found = by_label(first)
    assert found["copy N=4", "time", "cold"].values == pytest.approx((1e-3, 1.1e-3, 0.9e-3), rel=1e-6)
    assert found["copy N=4", "time", "cold"].clock_hz == pytest.approx(1.6e9, rel=1e-6)
    assert found["copy N=4", "time", "batch"].values == (0.0009,)
    assert found["copy N=4", "host_time", "cold"].note.startswith("summary")
    assert (first.device.name, second.device.name, first.device.architecture) == ("A", "B", "sm_90")
    assert [(s.outcome, s.note) for s in second.samples] == [("unsupported", "too large")]
    assert first.source.key != second.source.key


def test_onnxruntime_sets_the_first_run_apart_and_times_no_node_below_its_clock(tmp_path):
    found = {s.label: s for s in one(documents.onnxruntime(tmp_path)).samples}
    assert found["ort"].values == pytest.approx((500e-6, 510e-6))
    assert found["ort"].channels["warmup_s"] == pytest.approx((900e-6,))
    assert found["ort /1/Gemm"].values == pytest.approx((800e-6, 400e-6, 410e-6))
    assert found["ort tiny"].outcome == "unsupported"


def test_trtexec_keeps_queries_apart_from_profiles_and_leaves_out_transfers_that_were_off(tmp_path):
    found = by_label(one(documents.trtexec(tmp_path)))
    assert found["engine", "time", ""].values == pytest.approx((1e-3, 1.1e-3, 1.2e-3, 1.3e-3))
    assert {name for _, name, _ in found} == {"time", "latency", "h2d_time"}
    layers = one(documents.trtexec_profile(tmp_path)).samples
    assert len({s.case for s in layers}) == 2  # two layers of one name are two cases
    assert layers[0].values == pytest.approx((9e-5,))
    assert layers[0].testbed != found["engine", "time", ""].testbed


def test_mlperf_scores_from_run_start_to_run_stop_alone(tmp_path):
    record = one(documents.mlperf(tmp_path))
    found = {s.metric.name: s for s in record.samples}
    assert found["time"].values == (60.5,)
    assert found["init_time"].values == (2.0,)
    assert (found["throughput"].values, found["throughput"].metric.direction) == ((900.0,), "higher")
    assert record.device.name == "8xH200"
    assert record.source.lost == ("seed",)
    (aborted,) = one(documents.mlperf(tmp_path, status="aborted")).samples
    assert (aborted.values, aborted.outcome) == ((), "failed")


def test_a_summary_of_mlperf_inference_keeps_percentiles_and_throughput_of_valid_runs_alone(tmp_path):
    found = {s.metric.name: s.values for s in one(documents.mlperf_inference(tmp_path)).samples}
    assert found["time"] == pytest.approx((3.05337e-3,))
    assert found["latency_p90"] == pytest.approx((3.070554e-3,))
    assert found["throughput"] == (326.25,)
    (invalid,) = one(documents.mlperf_inference(tmp_path, result="INVALID")).samples
    assert (invalid.values, invalid.note) == ((), "the result is INVALID")


def test_what_the_file_says_wins_and_a_commit_that_contradicts_it_is_refused(tmp_path):
    path = documents.pytest_benchmark(tmp_path)
    same = Revision(sha="a" * 40, position=7)
    found = one(path, device=Device(name="other"), revision=same, branch="release")
    assert (found.device.name, found.revision, found.branch) == ("A CPU", same, "dev")
    with pytest.raises(SpecError, match="--commit names dddd"):
        one(path, revision=Revision(sha="d" * 40))


@pytest.mark.parametrize("make", [documents.trtexec, documents.onnxruntime])
def test_a_format_that_names_no_device_asks_for_it(make, tmp_path):
    with pytest.raises(SpecError, match="--device"):
        one(make(tmp_path), device=None)


def test_the_same_file_renamed_or_packed_is_the_same_run(tmp_path):
    path = documents.trtexec(tmp_path)
    other, packed = tmp_path / "engine2.json", tmp_path / "engine.json.gz"
    other.write_bytes(path.read_bytes())
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len({one(file).source.key for file in (path, other, packed)}) == 1


@pytest.mark.parametrize("make", documents.ALL, ids=lambda make: make.__name__)
def test_every_document_is_recognised_by_one_importer_alone(make, tmp_path):
    runs = runs_of(make(tmp_path))
    assert runs[0].source.importer == make.__name__.removesuffix("_profile")
    assert runs_of(make(tmp_path), runs[0].source.importer) == runs


def test_every_importer_has_a_document():
    assert {make.__name__.removesuffix("_profile") for make in documents.ALL} == set(IMPORTERS) - {"nearpeak_results"}


def test_a_file_of_no_format_or_of_another_one_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(SpecError, match="no known format"):
        runs_of(path)
    with pytest.raises(SpecError, match="where an object with 'result_columns' belongs"):
        runs_of(documents.trtexec(tmp_path), "asv")


@pytest.mark.parametrize("size", [0, 8, 16])
def test_samples_of_nvbench_that_are_short_or_too_many_are_refused(tmp_path, size):
    path = documents.nvbench(tmp_path)
    (tmp_path / "nv.json-bin" / "0.bin").write_bytes(b"\x00" * size)
    with pytest.raises(SpecError, match=f"holds {size} bytes"):
        runs_of(path)


def test_samples_of_nvbench_outside_the_folder_are_not_read(tmp_path):
    path = documents.nvbench(tmp_path)
    secret = tmp_path.parent / "secret.bin"
    secret.write_bytes(b"\x00\x00\x80?" * 3)
    path.write_text(path.read_text().replace("nv.json-bin/0.bin", "../secret.bin"))
    with pytest.raises(SpecError, match="not in the folder"):
        runs_of(path)
