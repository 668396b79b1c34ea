"""Files that were cut off anywhere, also packed: what came before is read, its loss named, or one line refuses it."""

import gzip

import pytest
from benchmarks._trace_files import WRITERS, planned
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.reading.byte_stream import blocks

PLACES = [*(place / 23 for place in range(1, 23)), 0.98, 0.995]


def whole(folder, form):
    suffix, write = WRITERS[form]
    path = folder / f"whole{suffix}"
    write(path, planned(5, 40))
    return path.read_bytes().rstrip(), suffix


def read_or_refused(path):
    """Return the trace and no error, or the error where one refuses the file."""
    try:
        return read_trace(path), None
    except NearpeakError as error:
        return None, error


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_anywhere_is_read_as_far_as_it_goes_and_its_loss_is_named(form, packed, tmp_path):
    data, suffix = whole(tmp_path, form)
    if packed and suffix in (".sqlite", ".db"):
        pytest.skip("databases are not packed")
    data = gzip.compress(data, mtime=0)[:-8] if packed else data
    read = 0
    for place in PLACES:
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(data[: int(len(data) * place)])
        trace, error = read_or_refused(path)
        if error is None:
            read += 1
            assert trace.header.trimmed, (place, trace.header.losses)
        else:
            assert (error.exit_code, len(str(error).splitlines())) == (2, 1)
            assert path.name in str(error)
    assert read >= len(PLACES) // 3


def test_rows_before_the_end_of_a_cut_database_are_kept(tmp_path):
    data, suffix = whole(tmp_path, "nsys_sqlite")
    before = read_trace(tmp_path / f"whole{suffix}")
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(data[:-6000])
    trace = read_trace(path)
    assert 0 < len(trace) < len(before)
    assert any("bytes are there" in loss.line() for loss in trace.header.losses)
    assert path.read_bytes() == data[:-6000]


def test_a_cut_trace_blames_the_file_and_not_the_recording(tmp_path):
    data, suffix = whole(tmp_path, "kineto")
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(data[:900])
    trace = read_trace(path)
    with pytest.raises(NearpeakError, match=r"cut off \(the JSON ends early, after 900 bytes\).*copy it again"):
        executed_of(trace)


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b\x08", b"SQLite format 3\x00"])
def test_a_stub_of_a_trace_is_refused_as_a_trace_and_not_taken_for_a_model(data, tmp_path):
    path = tmp_path / "stub.json"
    path.write_bytes(data)
    done = CliRunner().invoke(application(), ["analyze", str(path), "--text"])
    assert done.exit_code != 0
    assert "stub.json" in str(done.exception)
    assert "--target" not in str(done.exception)


def test_what_unpacks_to_far_too_much_is_refused_before_the_rest_of_its_block_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("nearpeak.base.input_files.FREE_BYTES", 1 << 16)
    path, total_bytes = tmp_path / "bomb.json.gz", 0
    path.write_bytes(gzip.compress(b"[" + bytes(1 << 24), mtime=0) * 4)
    with pytest.raises(SpecError, match="unpacks to more than 300 times its size"):  # noqa: PT012
        for block in blocks(path, [], 1 << 16):
            total_bytes += len(block)
    assert total_bytes < 1 << 18
