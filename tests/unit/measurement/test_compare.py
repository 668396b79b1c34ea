"""Two runners in turns of fresh processes, end to end."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import nearpeak
from nearpeak.api import measured_analysis
from nearpeak.api.measured_analysis import compare
from nearpeak.core.runs.measurement import Environment, Timing
from nearpeak.core.runs.paired_rounds import Judgement, PairedComparison, Round
from nearpeak.errors import SpecError
from nearpeak.measurement.timing import interleaved_rounds
from nearpeak.measurement.timing.interleaved_rounds import Arm

CASE = nearpeak.case("softmax", rows=64, columns=256, dtype="fp32")
TIMING = Timing(cache="hot", validate=False, flush_bytes=0, limit_s=60.0)


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def judged_as(verdict, detectable_ratio, **more):
    judgement = Judgement(
        verdict=verdict, time_ratio=3.5, low_ratio=2.1, high_ratio=6.0, round_count=2, tolerance_ratio=0.02,
        detectable_ratio=detectable_ratio,
    )  # fmt: skip
    sides = {"baseline": "callable:kernels:softmax", "candidate": "callable:kernels:twice", "clock": "cpu"} | more
    return PairedComparison(case=CASE, rounds=(), judgement=judgement, outcome="compared", **sides)


def flat(lines):
    return " ".join(map(str.strip, lines))


def arm(kernel):
    return Arm(runner=f"callable:kernels:{kernel}")


@pytest.mark.slow
def test_twice_the_work_is_a_regression_and_half_of_it_an_improvement():
    slower = compare(CASE, arm("softmax"), arm("twice"), TIMING, budget_s=240.0)
    assert slower.outcome == "compared"
    assert slower.judgement.verdict == "regression"
    assert 1.5 < slower.judgement.time_ratio < 2.6
    assert len(slower.rounds) >= 5
    assert slower.clock == "cpu"
    assert slower.differences == ()
    faster = compare(CASE, arm("twice"), arm("softmax"), TIMING, budget_s=240.0)
    assert faster.judgement.verdict == "improvement"


@pytest.mark.parametrize(("kernel", "outcome"), [("segfault", "crash"), ("leave", "crash"), ("fail", "failed")])
def test_one_that_cannot_run_is_named_instead_of_judged(kernel, outcome):
    found = compare(CASE, arm("softmax"), arm(kernel), TIMING)
    assert (found.outcome, found.judgement) == (outcome, None)
    assert f"callable:kernels:{kernel}" in found.note


def test_a_program_that_says_no_time_is_named_instead_of_judged():
    program = Arm(runner=f"process:{sys.executable} {Path(__file__).parent / 'program.py'} zero")
    found = compare(nearpeak.case("gemm", m=8, n=5, k=7, dtype="fp32"), program, program, TIMING)
    assert (found.outcome, found.judgement) == ("suspect_fast", None)
    assert "took no time" in found.note


def test_what_a_program_was_given_is_put_away_when_its_round_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = Arm(runner=f"process:{sys.executable} {Path(__file__).parent / 'program.py'}")
    rounds = interleaved_rounds.rounds_of(
        nearpeak.case("gemm", m=8, n=5, k=7, dtype="fp32"), (program, program), TIMING
    )
    next(rounds)  # of one arm beside itself, which waits for the device that it holds if both are taken for the first
    assert not list(tmp_path.glob("nearpeak-*/a.bin"))
    rounds.close()
    assert [path.suffix for path in tmp_path.glob("nearpeak-*")] == [".lock"]


def test_recorded_times_are_no_side_of_a_comparison():
    with pytest.raises(SpecError, match="needs something that runs"):
        compare(CASE, arm("softmax"), Arm(runner="null"), TIMING)


def test_what_is_not_there_is_refused_by_name():
    with pytest.raises(SpecError, match="absent"):
        compare(CASE, arm("softmax"), arm("absent"), TIMING)


def test_without_a_case_the_example_names_both_sides(capsys, monkeypatch):
    from nearpeak.cli import main

    monkeypatch.setattr(sys, "argv", ["nearpeak", "compare", "torch_cpu", "numpy"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "e.g. nearpeak compare torch_cpu numpy gemm m=256" in capsys.readouterr().err


def test_a_side_that_is_late_names_the_option_that_gives_it_longer():
    from nearpeak.cli.run.compare import _words

    late = replace(judged_as("", 0.0), judgement=None, outcome="timeout", note="a: it did not answer within 3 s")
    assert flat(_words(late).splitlines()).endswith("timeout: a: it did not answer within 3 s (--limit)")


def test_a_comparison_fits_80_columns():
    from nearpeak.cli.run.compare import _words

    lines = _words(judged_as("regression", 0.31)).splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert "+250.0% cpu time (99.6%: +110.0% to +500.0%; 2 rounds; tolerance 2.0%, detectable 31.0%)" in flat(lines)


def test_rounds_that_say_nothing_are_called_too_few_instead_of_given_an_interval():
    from nearpeak.cli.run.compare import _words

    said = flat(_words(judged_as("regression", 22284.0)).splitlines())
    assert "(2 rounds: too few to say how well that is known; a longer --budget gives more)" in said
    assert "detectable" not in said


@pytest.mark.parametrize(("baseline", "candidate", "words", "clock"), [
    ("process:./ours", "process:./theirs", "time by the program's own clock (", "program"),
    ("torch_cpu", "process:./ours", "time by the program's own clock on one side (", "program"),
    ("torch_cuda", "callable_cuda:kernels:twice", "device time (", "device"),
])  # fmt: skip
def test_times_that_programs_say_are_not_called_those_of_a_device(baseline, candidate, words, clock):
    from nearpeak.cli.run.compare import _json_line, _words

    found = judged_as("regression", 0.31, baseline=baseline, candidate=candidate, clock="device")
    assert words in flat(_words(found).splitlines())
    assert json.loads(_json_line(found))["clock"] == clock


def test_the_command_says_the_verdict_in_its_exit_code(capsys, monkeypatch):
    from nearpeak.cli import main

    words = ["compare", "callable:kernels:softmax", "callable:kernels:fail", "softmax", "rows=4", "columns=8"]
    monkeypatch.setattr(sys, "argv", ["nearpeak", *words, "dtype=fp32", "--no-check", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "failed"


def test_one_that_raises_in_its_validation_has_failed_and_is_not_called_wrong():
    found = compare(CASE, arm("softmax"), arm("fail"), replace(TIMING, validate=True))
    assert (found.outcome, found.judgement) == ("failed", None)
    assert "callable:kernels:fail: CRASH in" in found.note


def paired(monkeypatch, round_s, ratios, budget_s):
    """Return the comparison whose rounds take `round_s` each by a clock of its own, and its plans."""
    clock, side = [0.0], SimpleNamespace(clock="cpu", environment=Environment(device="cpu"))

    def rounds(*_):
        for seconds, ratio in zip(round_s, ratios, strict=True):
            clock[0] += seconds
            yield Round(four_log_ratio=(ratio,)), side, side

    monkeypatch.setattr(interleaved_rounds, "rounds_of", rounds)
    monkeypatch.setattr(measured_analysis, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    plans = []
    return compare(CASE, arm("softmax"), arm("twice"), TIMING, budget_s=budget_s, notify=plans.append), plans


def test_a_budget_of_few_rounds_gives_no_verdict_and_says_at_once_what_would(monkeypatch):
    found, (plan,) = paired(monkeypatch, [10.0] * 20, [0.5] * 20, budget_s=30.0)
    assert (found.judgement.verdict, len(found.rounds)) == ("inconclusive", 2)
    assert "5 take about 50 s" in plan.text


def test_rounds_are_judged_at_planned_looks_alone(monkeypatch):
    ratios = [0.1 if place % 2 else -0.1 for place in range(20)]
    found, (plan,) = paired(monkeypatch, [2.0] * 20, ratios, budget_s=27.0)
    assert plan.looks == (5, 10, 13)
    assert (found.judgement.verdict, len(found.rounds)) == ("inconclusive", 13)
    found, _ = paired(monkeypatch, [2.0] * 20, [0.05 + 1e-4 * place for place in range(20)], budget_s=27.0)
    assert (found.judgement.verdict, len(found.rounds)) == ("regression", 5)


def test_rounds_that_come_to_take_longer_end_without_a_verdict(monkeypatch):
    found, _ = paired(monkeypatch, [2.0, 2.0, *[40.0] * 18], [0.05] * 20, budget_s=30.0)
    assert (found.judgement.verdict, len(found.rounds)) == ("inconclusive", 4)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("failed", 1), ("crash", 1), ("unsupported", 1), ("timeout", 11), ("incorrect", 12), ("infra", 3)],
)
def test_what_cannot_run_has_another_exit_code_than_what_is_wrong_or_open(outcome, code):
    from nearpeak.cli.run.compare import _exit_code

    assert _exit_code([replace(judged_as("", 0.0), judgement=None, outcome=outcome)]) == code


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say on which core to run")
def test_both_sides_and_what_they_started_share_a_core_and_the_next_round_another():
    cores = sorted(os.sched_getaffinity(0))
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    sides = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    children = [int(side.stdout.readline()) for side in sides]
    try:
        for number in range(2):
            interleaved_rounds._share_core([side.pid for side in sides], number)
            found = [os.sched_getaffinity(pid) for pid in (*children, *(side.pid for side in sides))]
            assert found == [{cores[number % len(cores)]}] * 4
    finally:
        for pid in (*children, *(side.pid for side in sides)):
            os.kill(pid, signal.SIGKILL)
        for side in sides:
            side.wait()
            side.stdout.close()


def test_servers_start_once_fork_anew_for_each_round_and_change_sides(monkeypatch):
    monkeypatch.setattr(interleaved_rounds, "ROUND_S", 0.0)
    monkeypatch.setattr(interleaved_rounds, "LEAST_FOURS", 1)
    rounds = interleaved_rounds.rounds_of(CASE, (arm("softmax"), arm("softmax")), TIMING)
    seen = [(left, left.pid, right.pid) for _, left, right in (next(rounds) for _ in range(3))]
    rounds.close()
    (first, *_), (second, *_), (third, *_) = seen
    assert first is third is not second
    assert len({pid for _, *pids in seen for pid in pids}) == 6


def test_servers_of_two_interpreters_keep_their_sides(monkeypatch, tmp_path):
    monkeypatch.setattr(interleaved_rounds, "ROUND_S", 0.0)
    monkeypatch.setattr(interleaved_rounds, "LEAST_FOURS", 1)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    rounds = interleaved_rounds.rounds_of(CASE, (arm("softmax"), replace(arm("softmax"), python=str(other))), TIMING)
    first, second = (next(rounds)[1] for _ in range(2))
    rounds.close()
    assert first is second
