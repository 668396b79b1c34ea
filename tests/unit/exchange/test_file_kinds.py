"""Files that a command gets by mistake: each reader says what they are and what to give instead, in one line."""

import tomllib

import pytest
from house_rules import PACKAGE

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.exchange.file_kinds import described, file_kinds
from nearpeak.exchange.power_logs import read_log
from nearpeak.frontends.source_types import captured
from nearpeak.store.importers import importer_of
from nearpeak.traces.formats import format_of

SUMMARY = b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n60.0,600000,10,60000.0,sgemm\n"

FILES = {
    "a.nsys-rep": (b"\x00\x01", "a report of Nsight Systems; export it with 'nsys export --type sqlite"),
    "a.ncu-rep": (b"\x00", "a report of Nsight Compute"), "kernels.csv": (SUMMARY, "a summary of nsys stats"),
    "stats.txt": (b" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n", "a report of nsys stats as text"),
    "table.txt": (b"---\n Name    Self CPU %      Self CPU   CPU total %\n", "a table of the PyTorch profiler"),
    "events.out": (b"\x18\x00\x00\x00brain.Event:2", "a TensorBoard event file"),
    "perf.data": (b"PERFILE2", "Linux perf"),
    "weights.safetensors": (b"\x10\x00", "the weights of a model"), "a.zip": (b"PK\x03\x04", "an archive"),
    "a.pdf": (b"%PDF-1.7", "an image or a PDF"), "index.html": (b"<!DOCTYPE html>", "a page of HTML"),
    "results.json": (b"<!doctype html><html></html>", "a page of HTML"),
    "report.xml": (b'<?xml version="1.0"?><testsuites><testsuite name="a"/></testsuites>', "a report of JUnit"),
    "a.plan": (b"ftrt", "an engine of TensorRT"), "a.et": (b"\x0a\x05", "Chakra's protobuf"),
    "a.perfetto-trace": (b"\x0a", "a trace of Perfetto"),
}  # fmt: skip
READERS = {
    "analyze": lambda path: captured(str(path), CaptureOptions()),
    "trace": format_of,
    "store": lambda path: importer_of(path.read_bytes(), path.name),
    "telemetry": read_log,
}


def test_every_kind_has_a_source_and_something_to_tell_it_by():
    table = tomllib.loads((PACKAGE / "exchange" / "file_kinds.toml").read_text("utf-8"))["kind"]
    assert all(kind["source"] and (kind.get("begins") or kind.get("holds") or kind.get("ends")) for kind in table)
    assert len(file_kinds()) == len(table)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FILES)
def test_each_reader_says_what_a_file_is_and_what_to_give(tmp_path, name, reader):
    data, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SpecError) as error:
        READERS[reader](path)
    message = str(error.value)
    assert words in message
    assert "\n" not in message
    assert "is missing" not in message
    assert "not found" not in message


@pytest.mark.parametrize("reader", ["analyze", "store"])
def test_a_file_of_spaces_is_called_empty(tmp_path, reader):
    path = tmp_path / "a.json"
    path.write_bytes(b" \r\n")
    with pytest.raises(SpecError, match="is empty"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", ["analyze", "trace"])
def test_a_text_in_utf_16_that_is_not_read_is_named_as_one(tmp_path, reader):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}', "utf-16")
    with pytest.raises(SpecError, match="is text in UTF-16; write it in UTF-8"):
        READERS[reader](path)


def test_a_file_that_is_there_is_never_called_absent(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SpecError, match="is of no kind that is known; give a profiler's trace"):
        captured(str(path), CaptureOptions())


def test_a_trace_and_a_power_log_are_named_by_the_store():
    with pytest.raises(
        SpecError, match="is a trace of the PyTorch profiler; 'nearpeak analyze' reads it where it is whole"
    ):
        importer_of(b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}', "a.json")
    with pytest.raises(SpecError, match="is a power log; 'nearpeak telemetry --import' reads it"):
        importer_of(b"#Entity   POWER\nID        W\nGPU 0     100.0\n", "a.txt")


def test_what_is_of_no_kind_is_left_to_the_reader():
    assert described(b"cnt: 1, ((T([2, 4], f16),), {})", "ops.txt") == ""
    assert described(b'{"model_type": "llama"}', "config.json") == ""
