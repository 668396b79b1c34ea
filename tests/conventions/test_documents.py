"""What the documents say is true: reference pages are current, everything public is named, links lead somewhere."""

import inspect
import re

import generate_reference
import pytest
from benchmarks import quote
from benchmarks._figures import show_value, stored
from house_rules import ROOT

import nearpeak
from nearpeak import errors
from nearpeak.core.answers.bound import ASSUMPTIONS
from nearpeak.ops import OPS
from nearpeak.targets import TARGETS

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text_of(folder):
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs" / folder).glob("*.md")))


def anchors(text):
    """The anchors that a Markdown viewer gives to the headings of `text`."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_reference_pages_are_what_the_program_says_now():
    assert generate_reference.stale_pages() == [], "run 'make docs'"


def test_every_command_and_parameter_has_help_and_stands_in_the_reference():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    silent = []
    for name, command in generate_reference.commands().items():
        assert f"## `{name}`" in page
        silent += [] if command.help else [name]
        silent += [f"{name} {p.name}" for p in command.params if not getattr(p, "help", "") and p.name != "help"]
    assert silent == []


QUESTIONS = {
    "capture", "case", "target", "bound", "predict", "simulate", "analyze", "explain", "provision", "measure",
    "compare", "validate", "judge",
}  # fmt: skip


def test_public_names_are_one_function_per_question_and_the_values_that_they_give():
    functions = {name for name in nearpeak.__all__ if inspect.isfunction(getattr(nearpeak, name))}
    assert functions == QUESTIONS | {"case_table"}
    assert len(nearpeak.__all__) <= 30
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for name in nearpeak.__all__:
        assert f"## `{name}`" in reference
        assert inspect.getdoc(getattr(nearpeak, name))


def test_every_operator_target_error_and_assumption_is_in_the_reference():
    reference = text_of("reference")
    kinds = [name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    for name in (*kinds, *OPS, *TARGETS, *ASSUMPTIONS):
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", reference), f"{name} is in no reference page"
    assert all(kind.__doc__ for kind in map(errors.__dict__.get, kinds))


def test_the_page_on_bounds_explains_every_assumption():
    page = (ROOT / "docs" / "guide" / "bounds.md").read_text(encoding="utf-8")
    assert [key for key in ASSUMPTIONS if f"| {key} |" not in page] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    broken = []
    for link in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        place, _, anchor = link.partition("#")
        if re.match(r"https?:|mailto:", link):
            continue
        file = (document.parent / place) if place else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(link)
    assert broken == []


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md") if file.name != "index.md"]
    assert [page for page in pages if f"({page})" not in index] == []


def test_quoted_figures_are_the_measured_ones():
    figures = {name: show_value(float(record["value"]), record["unit"]) for name, record in stored().items()}
    faults = {
        str(file.relative_to(ROOT)): quote.misquotes(file.read_text("utf-8"), figures) for file in quote.documents()
    }
    assert {name: found for name, found in faults.items() if found} == {}, "run 'make docs'"


def test_stored_figures_are_complete():
    wanted = {"name", "value", "unit", "bar", "passed", "commit", "date", "seed", "machine"}
    assert {name: sorted(record) for name, record in stored().items() if set(record) != wanted} == {}
    assert [name for name, record in stored().items() if name != record["name"]] == []
