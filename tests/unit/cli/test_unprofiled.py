"""`nearpeak analyze --unprofiled`: what is refused, and that a trace takes it."""

import json

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_traces as planted
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import SpecError


def called(*words):
    return CliRunner().invoke(application(), ["analyze", *map(str, words)])


@pytest.fixture
def file(tmp_path):
    return planted.write(planted.CAUSES["profiler_inflated"][0](3), tmp_path / "trace.json")


def test_the_time_of_an_unrecorded_step_is_what_shares_are_of(file):
    done = called(file, "--unprofiled", "1.2 ms", "--json")
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["step_s"] == 0.0012
    assert report["executed"]["unprofiled_step_s"] == 0.0012


@pytest.mark.parametrize("text", ["3", "-1 s", "0 s", "1 GB", "soon"])
def test_what_is_no_time_of_a_step_is_refused(file, text):
    error = called(file, "--unprofiled", text).exception
    assert isinstance(error, SpecError)
    assert "\n" not in str(error)


def test_it_is_refused_for_a_model_and_for_two_traces(file):
    for words in (("resnet-18", "--unprofiled", "1 s"), (file, "--against", file, "--unprofiled", "1 s")):
        error = called(*words).exception
        assert isinstance(error, SpecError)
        assert "--unprofiled" in str(error)
