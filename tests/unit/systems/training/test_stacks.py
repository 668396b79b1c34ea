"""Tests of the catalogue of software stacks and of their fit."""

import pytest
from tests.unit.systems.training.constant_times import stack

from nearpeak.errors import SpecError
from nearpeak.systems.training.stack_files import STACKS, parse_stack, stack_of
from nearpeak.systems.training.stack_fit import fit_stack


def test_every_stack_states_its_source():
    for name in STACKS.names():
        found = stack_of(name)
        assert found.name == name
        assert found.source
        assert found.is_captured == (found.launch_s == 0)


def test_file_of_the_user(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "Mine"\nlaunch = "9 us"\nsource = "measured here"\n', encoding="utf-8")
    assert stack_of(str(path)).launch_s == 9e-6


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"title": "a", "launch": "9 us"}, "'source' is missing"),
        ({"title": "a", "launch": "9 us", "source": "b", "steps": "1 s"}, "unknown entry 'steps'"),
        ({"title": "a", "launch": "9 us", "source": "b", "captured": "yes"}, "must be of type bool"),
        ({"title": "a", "launch": "9 bananas", "source": "b"}, "bananas"),
    ],
)
def test_malformed_files_are_refused(entries, words):
    with pytest.raises(SpecError, match=words):
        parse_stack("mine", entries)


def _steps(candidate):
    """Return the steps of three plans, of which the host decides two."""
    return [max(1000 * candidate.launch_s, 0.01) + count * candidate.micro_batch_s for count in (1, 4, 8)]


def test_fit_finds_both_times():
    truth = stack(launch_s=33e-6, micro_batch_s=2.5e-3)
    fit = fit_stack(stack(launch_s=10e-6), _steps(truth), _steps, "three runs")
    assert fit.after_ratio < 0.02 < fit.before_ratio
    assert fit.stack.launch_s == pytest.approx(33e-6, rel=0.1)
    assert fit.stack.source == "three runs"


def test_one_measurement_fits_the_launch_alone():
    fit = fit_stack(stack(launch_s=10e-6), [0.033], lambda candidate: [1000 * candidate.launch_s], "one run")
    assert not fit.fits_micro_batch
    assert fit.stack.micro_batch_s == 0
    assert fit.stack.launch_s == pytest.approx(33e-6, rel=0.06)


def test_steps_that_no_host_times_meet_confirm_no_stack():
    for step_s, is_confirmed in ((0.033, True), (10.0, False)):  # a call never takes the host a second
        fit = fit_stack(stack(launch_s=10e-6), [step_s] * 3, lambda candidate: [1000 * candidate.launch_s] * 3, "runs")
        assert fit.stack.is_confirmed == is_confirmed


def test_as_many_host_times_as_steps_confirm_only_what_met_them_before():
    for step_s, is_confirmed in ((0.033, False), (0.0105, True)):
        fit = fit_stack(stack(launch_s=10e-6), [step_s], lambda candidate: [1000 * candidate.launch_s], "one run")
        assert fit.after_ratio < 0.06
        assert fit.stack.is_confirmed == is_confirmed


def test_no_measurement_is_refused():
    with pytest.raises(SpecError, match="at least one measured step time"):
        fit_stack(stack(), [], _steps, "nothing")
