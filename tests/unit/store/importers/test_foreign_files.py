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
    assert any(line.startswith("row results.track_other: no unit") for line in record.source.lost)
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
    assert runs[0].source.importer == documents.importer_name(make)
    assert runs_of(make(tmp_path), runs[0].source.importer) == runs


def test_every_importer_has_a_document():
    assert {documents.importer_name(make) for make in documents.ALL} == set(IMPORTERS) - {"nearpeak_results"}


def test_a_file_of_no_format_or_of_another_one_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(SpecError, match="no known format"):
        runs_of(path)
    with pytest.raises(SpecError, match="where an object with 'results' belongs"):
        runs_of(documents.trtexec(tmp_path), "asv")


@pytest.mark.parametrize("size", [0, 8, 16])
def test_samples_of_nvbench_that_are_short_or_too_many_are_refused(tmp_path, size):
    path = documents.nvbench(tmp_path)
    (tmp_path / "nv.json-bin" / "0.bin").write_bytes(b"\x00" * size)
    (run,) = runs_of(path)
    assert f"holds {size} bytes" in run.source.lost[0]
    assert not any(s.values for s in run.samples)


def test_samples_of_nvbench_outside_the_folder_are_not_read(tmp_path):
    path = documents.nvbench(tmp_path)
    secret = tmp_path.parent / "secret.bin"
    secret.write_bytes(b"\x00\x00\x80?" * 3)
    path.write_text(path.read_text().replace("nv.json-bin/0.bin", "../secret.bin"))
    (run,) = runs_of(path)
    assert "not in the folder" in run.source.lost[0]
    assert not any(s.values for s in run.samples)


def edited(path, change):
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    return path


def fits(raw):
    row = {
        "name": "BM_copy_BigO",
        "run_name": "BM_copy",
        "run_type": "aggregate",
        "aggregate_name": "BigO",
        "big_o": "N",
    }
    raw["benchmarks"] += [row, row | {"name": "BM_copy_RMS", "aggregate_name": "RMS", "rms": 0.1}]


def test_rows_of_google_benchmark_that_state_no_time_are_lost_and_the_others_kept(tmp_path):
    record = one(edited(documents.google_benchmark(tmp_path), fits))
    assert record.source.lost[:2] == (
        "row benchmarks[5]: BigO is a fit over the arguments, no time",
        "row benchmarks[6]: RMS is a fit over the arguments, no time",
    )
    assert ("BM_copy/8", "time", "") in by_label(record)


def test_a_row_without_a_time_costs_its_benchmark_alone(tmp_path):
    zero = {"name": "BM_zero", "run_type": "iteration", "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ns"}
    record = one(edited(documents.google_benchmark(tmp_path), lambda raw: raw["benchmarks"].append(zero)))
    assert record.source.lost[0] == "row benchmarks[5].real_time: 0.0 where a number above 0 belongs"
    assert {s.label for s in record.samples} == {"BM_copy/8", "BM_bad"}


def test_counters_of_google_benchmark_are_kept_and_only_rates_are_judged(tmp_path):
    def count(raw):
        for row in raw["benchmarks"][:3]:
            row |= {"bytes_per_second": 1e9, "items_per_second": 2e9, "flops": 5.0, "error_occurred": False}

    found = by_label(one(edited(documents.google_benchmark(tmp_path), count)))
    assert found["BM_copy/8", "bytes_per_second", ""].values == (1e9, 1e9, 1e9)
    assert found["BM_copy/8", "items_per_second", ""].metric.direction == "higher"
    assert dict(found["BM_copy/8", "time", ""].channels) == {"flops": (5.0, 5.0, 5.0)}


def test_the_mean_stands_for_repetitions_whose_median_is_missing(tmp_path):
    def means(raw):
        raw["benchmarks"][0] |= {"aggregate_name": "mean"}

    found = by_label(one(edited(documents.google_benchmark(tmp_path, aggregates=True), means)))
    assert found["BM_copy/8", "time", ""].note == "summary: the mean over its repetitions alone is known"


def test_asv_of_2014_has_no_columns(tmp_path):
    record = one(documents.asv_of_2014(tmp_path))
    found = {s.label: (s.values, s.metric.unit, s.outcome) for s in record.samples}
    assert found == {
        "time_one": ((1e-3,), "s", "budget"), "time_gone": ((), "s", "failed"), "mem_two": ((4096.0,), "B", "budget"),
        "time_three(1)": ((1e-3,), "s", "budget"), "time_three(2)": ((), "s", "failed"),
    }  # fmt: skip


def test_hyperfine_keeps_runs_that_ended_well(tmp_path):
    first, cpu, second, _ = one(documents.hyperfine(tmp_path)).samples
    assert (first.values, first.note) == ((1.0, 1.1), "1 of 3 runs ended with an error code and are left out")
    assert cpu.values == (pytest.approx(0.03),)
    assert (second.values, second.launch, second.note) == ((1.1,), 1, "summary: the median alone is known")
    assert dict(first.parameters) == {"n": "1"}


def test_serving_benchmarks_keep_each_line_as_a_run_and_single_values_where_they_are(tmp_path):
    plain, detailed = (
        {s.metric.name: s for s in run.samples} for run in runs_of(documents.serving_benchmark(tmp_path))
    )
    assert plain["ttft"].values == (0.045,)
    assert plain["ttft"].note == "summary: the median alone is known; 1 of 10 requests failed"
    assert plain["request_latency"].values == (0.5,)
    assert (plain["output_token_rate"].values, plain["output_token_rate"].metric.direction) == ((800.0,), "higher")
    assert plain["ttft"].label == "a/model request_rate=4 num_prompts=10"
    assert detailed["ttft"].values == (0.04, 0.05)
    assert detailed["itl"].values == (0.01, 0.02, 0.03)
    assert detailed["ttft_p99"].values == (0.12,)


def test_a_serving_benchmark_without_an_answer_has_failed(tmp_path):
    first, _ = runs_of(documents.serving_benchmark(tmp_path, completed=0))
    assert [(s.values, s.outcome) for s in first.samples] == [((), "failed")]


def test_vllm_latencies_are_samples(tmp_path):
    assert [s.values for s in one(documents.vllm_offline(tmp_path)).samples] == [(0.1, 0.2, 0.3)]


def test_aiperf_has_the_names_of_the_other_serving_benchmarks(tmp_path):
    record = one(documents.aiperf(tmp_path))
    found = {s.metric.name: s.values[0] for s in record.samples}
    assert found == pytest.approx(
        {"request_rate": 13.0, "ttft": 0.05, "ttft_mean": 0.06, "ttft_p99": 0.09, "tpot": 0.004, "tpot_mean": 0.005}
    )
    assert (record.device.name, record.samples[0].label) == ("2x A GPU", "a/model concurrency=8")


def test_requests_of_aiperf_are_samples_and_failed_ones_are_lost(tmp_path):
    record = one(documents.aiperf_requests(tmp_path))
    found = {s.metric.name: s.values for s in record.samples}
    assert found["ttft"] == (0.05, 0.05)
    assert found["itl"] == (0.004, 0.005, 0.004, 0.005)
    assert record.source.lost[0] == "row [2]: is a request that failed"


def test_figures_of_bencher_are_kept_as_they_are(tmp_path):
    latency, throughput, accuracy = one(documents.bencher(tmp_path)).samples
    assert (latency.metric.name, latency.values) == ("time", (pytest.approx(88e-9),))
    assert json.loads(latency.records["bencher"]) == {
        "latency": {"value": 88.0, "lower_value": 87.42, "upper_value": 88.88}
    }
    assert throughput.metric.direction == "higher"
    assert (accuracy.metric.name, accuracy.values) == ("bencher accuracy", (-0.25,))


def test_rows_of_google_benchmark_of_before_2019_are_told_by_their_names(tmp_path):
    def old(raw):
        row = {"iterations": 10, "real_time": 2.0, "cpu_time": 2.0, "time_unit": "ns"}
        names = ("BM_a", "BM_a", "BM_a_mean", "BM_a_stddev", "BM_b_mean")
        raw["benchmarks"] = [row | {"name": name} for name in names]
        raw["benchmarks"] += [
            {"name": "BM_a_BigO", "big_o": "N", "real_coefficient": 1.0},
            {"name": "BM_a_RMS", "rms": 0.1},
        ]

    record = one(edited(documents.google_benchmark(tmp_path), old))
    found = {s.label: len(s.values) for s in record.samples if s.metric.name == "time"}
    assert found == {"BM_a": 2, "BM_b_mean": 1}  # no benchmark is called BM_b, so that this is a name
    assert [line.partition(": ")[2] for line in record.source.lost[:2]] == [
        "BigO is a fit over the arguments, no time", "RMS is a fit over the arguments, no time",
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_that_a_shell_of_windows_wrote_is_read_as_any_other(tmp_path, encoding):
    plain = one(documents.google_benchmark(tmp_path))
    path = tmp_path / "gb.json"
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    path.write_bytes((mark + path.read_text().replace("\n", "\r\n")).encode(encoding))
    assert one(path).samples == plain.samples


def test_a_line_that_is_no_json_is_lost_and_the_others_kept(tmp_path):
    path = documents.serving_benchmark(tmp_path)
    first, last = path.read_text().splitlines()
    path.write_text(f"{first}\nTraceback (most recent call last):\n{last}\n")
    runs = runs_of(path)
    assert len(runs) == 2
    assert any("[1]: 'Traceback (most recent call last):' where an object" in line for line in runs[0].source.lost)


def test_a_rate_of_aiperf_in_another_unit_is_lost(tmp_path):
    path = edited(
        documents.aiperf(tmp_path), lambda raw: raw["request_throughput"].update(unit="requests/min", avg=600.0)
    )
    record = one(path)
    assert not [s for s in record.samples if s.metric.name == "request_throughput"]
    assert any("'requests/min' is no rate per second" in line for line in record.source.lost)


def test_a_state_that_stands_twice_names_its_file(tmp_path):
    path = edited(documents.nvbench(tmp_path), lambda raw: raw["benchmarks"].append(raw["benchmarks"][0]))
    with pytest.raises(SpecError, match=r"nv\.json: .* stands twice in one run"):
        runs_of(path)


def test_a_file_of_many_lines_that_are_no_json_is_refused_at_once(tmp_path):
    path = documents.serving_benchmark(tmp_path)
    first, last = path.read_text().splitlines()
    path.write_text("\n".join([first, *["[],"] * 200, last]) + "\n")
    with pytest.raises(SpecError, match="line 102: is not JSON"):
        runs_of(path)
