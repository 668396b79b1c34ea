"""Templates for continuous integration: they parse, they use commands and options that exist, their policy is good."""

import re
import shlex

import generate_reference
import pytest
from house_rules import ROOT

from nearpeak.core.history.gate import BASELINES
from nearpeak.gate.policy_file import read_policy

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
FOLDER = ROOT / "docs" / "ci"
TEMPLATES = sorted(FOLDER.glob("*.yml"))


def scripts(node):
    """Every text of a template that a shell runs."""
    if isinstance(node, dict):
        for key, one in node.items():
            if key == "run" and isinstance(one, str):
                yield one
            elif key in ("script", "before_script", "after_script"):
                yield from one
            else:
                yield from scripts(one)
    elif isinstance(node, list):
        for one in node:
            yield from scripts(one)


def calls(template):
    """Every call of nearpeak in a template, as words."""
    for text in scripts(yaml.safe_load(template.read_text(encoding="utf-8"))):
        for line in text.replace("\\\n", " ").splitlines():
            if found := re.match(r"\s*(nearpeak .*?)(?:\|\||&&|;|$)", line):
                yield shlex.split(found[1])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.name)
def test_a_template_measures_and_judges_with_commands_and_options_that_exist(template):
    commands = generate_reference.commands()
    found = list(calls(template))
    assert [words[1] for words in found] == ["measure", "gate"]
    for words in found:
        known = {option for parameter in commands[f"nearpeak {words[1]}"].params for option in parameter.opts}
        given = {word for word in words[2:] if word.startswith("--")}
        assert given <= known, f"{sorted(given - known)} is no option of nearpeak {words[1]}"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.name)
def test_a_template_keeps_the_store_of_main_and_edits_its_comment_by_the_marker(template):
    text = template.read_text(encoding="utf-8")
    assert "marker=$(head -n 1 comment.md)" in text
    assert "startswith($marker)" in text
    assert "nearpeak.db" in text
    assert "--against main" in text


def test_the_policy_of_the_templates_is_good():
    rules = read_policy(FOLDER / "nearpeak-gate.toml").rules
    assert {rule.baseline for rule in rules} <= set(BASELINES)
    assert len(rules) == 3


def test_both_templates_are_there_and_the_page_on_history_names_them():
    assert [file.name for file in TEMPLATES] == ["github_actions.yml", "gitlab.yml"]
    page = (ROOT / "docs" / "guide" / "history.md").read_text(encoding="utf-8")
    assert all(f"../ci/{file.name}" in page for file in TEMPLATES)
