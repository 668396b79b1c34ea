"""Finished studies in the store: the leading configuration as a series, once, whatever is run again."""

import json
from dataclasses import replace

import pytest
from tests.unit.reports.tuning.test_study_report import STUDY
from typer.testing import CliRunner

from nearpeak.api.study_history import RECORD, study_digest
from nearpeak.cli import application
from nearpeak.errors import NearpeakError
from nearpeak.store import open_store

KERNEL = """
import numpy as np

def product(inputs, *, block, order="rows", **_):
    if order == "none":
        raise ValueError("no such order")
    for _ in range(20 if block == 1 else 1):
        out = inputs["a"] @ inputs["b"]
    return {"y": out}
"""
SPACE = """
name = "planted product"
function = "kernel.py:product"
case = "gemm m=32 n=32 k=32 dtype=fp32"
[parameters]
block = [1, 8]
order = ["rows", "none"]
"""


@pytest.fixture
def space(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


def run(*words):
    done = CliRunner().invoke(application(), ["tune", *map(str, words)])
    if isinstance(done.exception, NearpeakError):
        raise done.exception
    return done


def test_a_finished_study_is_one_run_and_the_same_command_again_adds_none(space, tmp_path):
    store, study = tmp_path / "s.db", tmp_path / "s.jsonl"
    words = (space, "--study", study, "--finalists", 0, "--store", store, "--json")
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "1 new run" in done.stderr
    data = study.read_bytes()
    assert "holds this study already" in run(*words).stderr
    assert study.read_bytes() == data
    with open_store(store) as opened:
        (series,) = opened.series(metric="time")
        assert series.testbed.name.startswith("tune callable:")
        assert series.testbed.policy["cache"] == "hot"
        assert len(opened.runs()) == 1
        history = opened.history(series.id)
        (number,) = set(history.run_ids)
        first = int(min(history.launches))
        found = opened.records(int(number), series.id, first)[RECORD]
        assert found["settings"] == {"block": 8, "order": "rows"}
        assert found["counts"]["failed"] == 2
        assert len(opened.samples(int(number), series.id, first, channel="evaluation_s")) == 2


def test_objectives_and_a_store_or_a_remaining_gain_go_not_together(tmp_path):
    path = tmp_path / "o.toml"
    path.write_text('evaluate = "o.py:f"\nobjectives = ["error"]\n[parameters]\na = [1, 2]\n')
    for words, message in (
        (("--store", tmp_path / "s.db"), "--store: keeps times of kernels"),
        (("--least-gain", "1%"), "--least-gain: is about one time"),
        (("--repository", tmp_path), "--repository: .* add --store"),
        (("--least-gain", "much"), "--least-gain 'much': is not a share"),
    ):
        with pytest.raises(NearpeakError, match=message) as raised:
            run(path, *words)
        assert "\n" not in str(raised.value)


def test_the_identity_of_a_study_rests_on_what_was_measured():

    assert study_digest(STUDY) == study_digest(replace(STUDY, achievable_s=None, stop_reason="other"))
    assert study_digest(STUDY) != study_digest(replace(STUDY, trials=STUDY.trials[:-1]))
    assert json.dumps(STUDY.leader) == '{"block": 64}'
