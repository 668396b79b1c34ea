"""Runs as other tools' text formats: figures survive a round trip, and names say which case is meant."""

import json
import re
from dataclasses import replace

import pytest
from house_rules import PACKAGE
from tests.unit.store.importers import documents
from tests.unit.store.importers.documents import runs_of

from nearpeak.core.history.stored_run import TIME, Device, Metric, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import SpecError
from nearpeak.exchange.run_exports import EXPORTS


def record(*samples):
    return RunRecord(device=Device(name="a"), samples=samples, source=Source(digest="x"), started_ns=1_500_000_000)


def sample(label="gemm", metric=TIME, values=(1e-6, 3e-6, 2e-6), bed="torch", **fields):
    return SampleSet(case=label, label=label, metric=metric, values=values, testbed=Testbed(name=bed), **fields)


def test_every_file_of_the_folder_is_a_format_of_its_name():
    stems = sorted(path.stem for path in (PACKAGE / "exchange" / "run_exports").glob("*.py") if path.stem[0] != "_")
    assert [EXPORTS[name].name for name in EXPORTS] == stems


def test_a_bencher_file_comes_back_as_it_was(tmp_path):
    path = documents.bencher(tmp_path)
    assert json.loads(EXPORTS["bencher"].text_of(runs_of(path))) == json.loads(path.read_text())


def test_bencher_has_latency_in_nanoseconds_with_the_interval_of_the_median():
    memory = Metric(name="peak_memory", unit="B", kind="memory")
    text = EXPORTS["bencher"].text_of([record(sample(), sample(metric=memory, values=(5.0,)))])
    assert json.loads(text) == {
        "gemm": {
            "latency": {"value": 2000.0, "lower_value": 1000.0, "upper_value": 3000.0},
            "peak-memory": {"value": 5.0},
        }
    }


def test_bencher_tells_testbeds_apart_and_leaves_out_failed_cases():
    failed = sample(label="conv", values=(), outcome="failed")
    text = EXPORTS["bencher"].text_of([record(sample(), sample(bed="triton"), failed)])
    assert list(json.loads(text)) == ["gemm torch", "gemm triton"]


def test_bencher_joins_the_launches_of_a_run():
    launches = [sample(values=(1e-6 * number,), launch=number) for number in (1, 2, 5)]
    figures = json.loads(EXPORTS["bencher"].text_of([record(*launches)]))["gemm"]["latency"]
    assert figures == {"value": 2000.0, "lower_value": 1000.0, "upper_value": 5000.0}


def test_bencher_refuses_what_it_cannot_state():
    with pytest.raises(SpecError, match="latency stands in two runs; export one of them"):
        EXPORTS["bencher"].text_of([record(sample()), record(sample())])
    with pytest.raises(
        SpecError, match="gemm: latency of launch 1 stands twice in one run; the format has one of a name"
    ):
        EXPORTS["bencher"].text_of([record(sample(launch=1), replace(sample(launch=1), case="of other strides"))])
    with pytest.raises(SpecError, match="has 1025 characters; the format takes 1024"):
        EXPORTS["bencher"].text_of([record(sample(label="x" * 1025))])


def test_openmetrics_has_one_family_for_each_metric_and_escapes_labels():
    rate = Metric(name="throughput", unit="1/s", direction="higher", kind="throughput")
    text = EXPORTS["openmetrics"].text_of([record(sample(label='a "b"\\\n'), sample(metric=rate, values=(7.0,)))])
    assert text.endswith("# EOF\n")
    assert "# TYPE nearpeak_time_seconds gauge\n# UNIT nearpeak_time_seconds seconds\n" in text
    assert re.search(
        r'^nearpeak_time_seconds\{case="a \\"b\\"\\\\\\n",.*stat="median"\} 2e-06 1\.500$', text, re.MULTILINE
    )
    assert text.count('stat="low"') == 1
    assert re.search(r'^nearpeak_throughput_per_second\{.*stat="median"\} 7\.0 1\.500$', text, re.MULTILINE)
