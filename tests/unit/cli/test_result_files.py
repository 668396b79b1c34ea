"""`nearpeak analyze` of a benchmark's result file: what the file is, and which command takes it."""

import gzip
import json

import pytest
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.cli.shared.result_files import refuse_results
from nearpeak.errors import SpecError

PYTEST = {
    "machine_info": {"node": "n"}, "commit_info": {}, "version": "5.3.1", "datetime": "2026-01-01T00:00:00+00:00",
    "benchmarks": [{"name": "test_a", "fullname": "t.py::test_a", "stats": {"median": 1.0, "rounds": 5}}],
}  # fmt: skip
TUNER = {"metadata": {"timeunit": "miliseconds"}, "results": [{"configuration": {"block_size_x": 16}, "times": {}}]}


def said(path, *words):
    error = CliRunner().invoke(application(), ["analyze", str(path), *words]).exception
    assert isinstance(error, SpecError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "tool", "command"),
    [(PYTEST, "pytest-benchmark", "'nearpeak store import' takes it"), (TUNER, "Kernel Tuner", "no command reads")],
)
def test_a_result_file_is_named_with_the_command_that_takes_it(content, tool, command, packed, tmp_path):
    path = tmp_path / ("r.json.gz" if packed else "r.json")
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    for words in ((), ("--target", "h200_sxm")):
        message = said(path, *words)
        assert tool in message
        assert command in message


def test_other_files_are_left_to_those_who_read_them(tmp_path):
    for name, data in (("a.py", b"class Model: ..."), ("b.json", b'{"cases": []}'), ("c.gz", b"\x1f\x8bdamaged")):
        path = tmp_path / name
        path.write_bytes(data)
        refuse_results(path)
    refuse_results(tmp_path)
