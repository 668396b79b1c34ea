"""Formats are found by file, refuse unknown names, and print what is covered and what is not."""

import dataclasses
import re

import pytest
from tests.unit.reports import factory

from nearpeak.core.answers.analysis import Fit
from nearpeak.core.answers.bound import Policy
from nearpeak.errors import UnknownNameError
from nearpeak.reports import FORMATS, figure_text, render
from nearpeak.reports.analysis.terminal import render as terminal

ANALYSIS = factory.analysis(measured=True)
COMPLETE = factory.analysis(complete=True)


def whole(analysis, name):
    """Return a report with what the answer rests on."""
    return terminal(analysis, why=True) if name == "terminal" else render(analysis, name)


def test_formats_are_the_files_of_the_folder():
    assert FORMATS.names() == ("html", "json", "markdown", "terminal")


def test_unknown_format_lists_the_nearest_one():
    with pytest.raises(UnknownNameError, match="did you mean markdown"):
        render(ANALYSIS, "markdwn")


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_renders_twice_to_the_same_text(name):
    assert render(ANALYSIS, name) == render(ANALYSIS, name)


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_incomplete_totals_are_marked_and_the_uncovered_calls_named(name):
    text = whole(ANALYSIS, name)
    assert "bound covers 805 of 808 calls" in text
    assert "aten.cumsum.default" in text
    assert "≥ " in text
    assert "≥ " not in re.sub(r"(?s)<script.*", "", whole(COMPLETE, name))


@pytest.mark.parametrize("name", FORMATS.names())
@pytest.mark.parametrize("devices", [0, 1, 12])
def test_one_to_twelve_targets_and_even_none_are_rendered(name, devices):
    assert render(factory.analysis(devices=(factory.DEVICES * 2)[:devices]), name)


@pytest.mark.parametrize("name", FORMATS.names())
def test_a_list_of_cases_has_neither_batch_nor_memory(name):
    text = render(factory.analysis(step="sweep", memory=None, parameter_count=None), name)
    assert "batch 1" not in text
    assert "does not fit" not in text


@pytest.mark.parametrize("name", FORMATS.names())
def test_a_step_without_any_covered_call_is_rendered(name):
    assert render(factory.analysis(rows=()), name)


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_measurement_below_its_bound_is_called_implausible(name):
    assert "mplausible" in render(ANALYSIS, name) or "below their bound" in render(ANALYSIS, name)


def test_terminal_fits_eighty_columns_and_has_no_colour_in_a_pipe():
    text = terminal(ANALYSIS)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_terminal_colours_on_request_and_shows_more_of_names_when_wide():
    assert "\x1b[" in terminal(ANALYSIS, colour=True)
    assert "n=4096 k=14336 causal=True bf16" in terminal(ANALYSIS, width=120)
    assert "n=4096 k=14336 causal=True bf16" not in terminal(ANALYSIS, width=80)


def test_terminal_takes_brackets_of_names_literally():
    assert "[bold]layers" in terminal(factory.analysis(name="[bold]layers[/bold]"))


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_escape_sequences_and_direction_overrides_of_names_are_taken_out(name):
    hostile = factory.analysis(name="a\x1b[31mred\x1b]0;title\x07\u202eevil\x00\x9b1mz")
    text = render(hostile, name)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "aredevil1mz" in text


def test_markdown_names_are_code_spans_that_cannot_break_a_table():
    rows = [line for line in render(ANALYSIS, "markdown").splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (5, 6, 9) for row in rows)
    assert "\n`model.layers" not in render(ANALYSIS, "markdown")


def test_a_target_that_holds_not_even_one_sample_says_so():
    text = terminal(ANALYSIS, why=True)
    line = next(line for line in text.splitlines() if line.startswith("l4") and line.endswith("0"))
    assert line.split()[-2:] == ["no", "0"]
    assert figure_text.fits(Fit(fits=None, capacity_bytes=None, largest_batch_count=None).fits) == "unknown"


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_the_work_of_any_algorithm_is_explained_and_that_of_the_usual_ones_needs_no_words(name):
    free = dataclasses.replace(ANALYSIS, policy=Policy(algorithm="any"))
    said = [" ".join(whole(one, name).split()) for one in (free, ANALYSIS)]
    assert ["that no algorithm does without" in text for text in said] == [True, False]
