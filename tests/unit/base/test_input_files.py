"""What is no file, too long, or expands without limit is refused in one line; a pipe that gives something is read."""

import gzip
import os
import threading

import pytest

from nearpeak.base import input_files
from nearpeak.base.input_files import (
    bytes_of_file,
    check_file,
    json_value,
    reading,
    text_of_file,
    toml_of_file,
    toml_table,
    unpacked,
)  # fmt: skip
from nearpeak.errors import SpecError


@pytest.mark.parametrize(("path", "said"), [
    ("/dev/urandom", "is a device, not a file"), ("/dev/full", "is a device, not a file"), ("/", "is a folder"),
    ("/nowhere", "/nowhere: not found"), ("a\0b", "null"),
])  # fmt: skip
def test_what_is_no_file_is_refused_by_what_it_is(path, said):
    for read in (check_file, bytes_of_file, text_of_file, toml_of_file):
        with pytest.raises(SpecError, match=said):
            read(path)


def test_a_pipe_is_read_while_it_is_written_and_refused_where_nobody_writes(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("x = 1\n" * 1,))
    writer.start()
    assert toml_of_file(path) == {"x": 1}
    writer.join()
    monkeypatch.setattr(input_files, "PATIENCE_S", 0.01)
    with pytest.raises(SpecError, match="is a pipe into which nothing was written"):
        bytes_of_file(path)
    with pytest.raises(SpecError, match="is a pipe, and is read more than once"):
        check_file(path)


def test_a_file_over_its_limit_is_refused_by_its_size_or_as_it_comes(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"x" * 101)
    with pytest.raises(SpecError, match="longer than 100 B"):
        bytes_of_file(path, most_bytes=100)
    with pytest.raises(SpecError, match="longer than 0 B"):
        bytes_of_file("/proc/self/stat", most_bytes=0)  # it states no size


def test_a_packed_file_becomes_no_more_than_its_limit():
    bomb = gzip.compress(bytes(1000))
    assert unpacked(bomb + bomb + b"\0\0", "x") == bytes(2000)
    with pytest.raises(SpecError, match=r"unpacks to more than 1\.5 kB"):
        unpacked(bomb + bomb, "x", most_bytes=1500)
    with pytest.raises(SpecError, match="damaged gzip file: it ends early"):
        unpacked(bomb[:-3], "x")


def test_texts_over_a_limit_are_faults_of_the_text():
    for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "[" + "[]," * 5_000_000 + "[]]"):
        with pytest.raises(ValueError, match=r"nested|digits|memory"):
            json_value(text)
    for text in ("a = " + "[" * 5_000, "a." * 1_000 + "a = 1", "a = 1\n" * 1_000_000):
        with pytest.raises(ValueError, match=r"nested|parts|longer"):
            toml_table(text)


@pytest.mark.parametrize(("value", "said"), [
    (5, "a number where a table"), ("x", "a text where a table"), ([], "a list where a table"),
    (None, "nothing where a table"), (True, "a truth value where a table"),
])  # fmt: skip
def test_a_value_of_the_wrong_kind_is_told_in_terms_of_the_file(value, said):
    start = rf"^x\.toml: cannot be read as rig: it holds {said} is right"
    with pytest.raises(SpecError, match=start), reading("x.toml", "rig"):
        value.get("name")
    with pytest.raises(SpecError, match="holds a number where a list"), reading("x.toml", "rig"):
        list(7)


@pytest.mark.parametrize("error", [
    RecursionError("deep"), MemoryError(), OverflowError("large"), KeyError("a"), AttributeError(), OSError(5, "Input"),
])  # fmt: skip
def test_whatever_a_reader_raises_names_the_file(error):
    with pytest.raises(SpecError, match=r"^x\.json: cannot be read") as caught, reading("x.json", "report"):
        raise error
    assert len(str(caught.value).splitlines()) == 1
