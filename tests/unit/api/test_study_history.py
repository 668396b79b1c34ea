"""Finished studies in the store: the leading configuration as a series, once, whatever is run again."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.reports.tuning.test_study_report import STUDY
from typer.testing import CliRunner

from nearpeak.api import measured_analysis
from nearpeak.api.study_history import RECORD, keep_study, study_digest
from nearpeak.cli import application
from nearpeak.core.history.stored_run import Revision
from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.errors import NearpeakError
from nearpeak.ops import case
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


COMMITS, SLOW_FROM = 24, 16
POLICY = '[[rule]]\nname = "rolling"\nbaseline = "rolling"\nwindow = 10\n'


def sha_of(position):
    return f"{position:02x}".ljust(40, "a")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A store with a study at each commit; the kernel is half as fast from one of them, and led by another."""
    draw, place, gemm = np.random.default_rng(0), tmp_path / "s.db", case("gemm", m=8, n=8, k=8, dtype="fp32")
    with open_store(place, create=True) as store:
        for position in range(COMMITS):
            time_s = 2e-3 if position >= SLOW_FROM else 1e-3

            def measure(case, runner, timing, *, launch_count, time_s=time_s):
                for _ in range(launch_count):
                    samples = tuple((time_s * draw.normal(1, 0.01, 20)).tolist())
                    yield Measurement(
                        case=case, target="cpu", runner=runner, samples_s=samples, outcome=Outcome.CONVERGED
                    )

            monkeypatch.setattr(measured_analysis, "measure", measure)
            leads = {"block": 64 if position < SLOW_FROM else 16}
            study = replace(STUDY, seed=position, winner=leads)
            revision = Revision(sha=sha_of(position), position=position, repository="r")
            assert keep_study(study, gemm, Timing(), store, revision=revision)
    return place


def test_a_slow_down_of_a_tuned_kernel_is_found_and_its_configurations_are_shown(kept, tmp_path):
    def asked(*words):
        return CliRunner().invoke(application(), [*words, "--store", str(kept), "--text"])

    history = asked("history").stdout
    assert f"{COMMITS} commits, " in history
    assert "▲" in history
    led = [line.split() for line in history.splitlines()[-2:]]
    assert led == [[sha_of(0)[:10], "block=64"], [sha_of(SLOW_FROM)[:10], "block=16"]]
    found = asked("regressions")
    assert found.exit_code == 0, found.output
    assert "+100" in found.stdout or "+99" in found.stdout
    assert f"worse since {sha_of(SLOW_FROM - 1)[:10]}" in found.stdout
    policy = tmp_path / "gate.toml"
    policy.write_text(POLICY)
    sound = asked("gate", "--policy", str(policy), "--revision", sha_of(SLOW_FROM - 1))
    assert sound.exit_code == 0, sound.output
    slow = asked("gate", "--policy", str(policy), "--revision", sha_of(SLOW_FROM))
    assert slow.exit_code == 10, slow.output
