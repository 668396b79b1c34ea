"""Continuous integration: the action and the templates use what exists, and their scripts run on recorded events."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import generate_reference
import pytest
from house_rules import ROOT

from nearpeak.core.history.gate import BASELINES
from nearpeak.gate.policy_file import read_policy

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
FOLDER = ROOT / "docs" / "ci"
ACTION = ROOT / "action.yml"
SCRIPTS = (ACTION, FOLDER / "gitlab.yml")
POLICY = 'tolerance = "5%"\n[[rule]]\nname = "not slower"\nbaseline = "rolling"\nwindow = 10\n'
FORK = {"number": 7, "base": {"ref": "main"}, "head": {"repo": {"full_name": "fork/kernels"}}}


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


def documents(template):
    return list(yaml.safe_load_all(template.read_text(encoding="utf-8")))


@pytest.mark.parametrize("template", SCRIPTS, ids=lambda file: file.name)
def test_a_script_calls_one_command_with_options_that_exist(template):
    texts = [text.replace("\\\n", " ") for text in scripts(documents(template))]
    lines = [line for text in texts for line in text.splitlines()]
    (call,) = [found[1] for line in lines if (found := re.match(r"\s*(nearpeak .*?)(?:\|\||&&|;|$)", line))]
    words = shlex.split(call)
    assert words[1] == "ci"
    known = {option for parameter in generate_reference.commands()["nearpeak ci"].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_workflow_gives_the_action_inputs_that_it_has():
    (workflow,) = documents(FOLDER / "github_actions.yml")
    (action,) = documents(ACTION)
    (step,) = [step for step in workflow["jobs"]["gate"]["steps"] if "nearpeak" in step.get("uses", "")]
    needed = {name for name, one in action["inputs"].items() if one.get("required")}
    assert needed <= set(step["with"]) <= set(action["inputs"])


@pytest.mark.parametrize("template", SCRIPTS, ids=lambda file: file.name)
def test_every_input_is_used_and_every_input_that_is_used_is_there(template):
    text = template.read_text(encoding="utf-8")
    stated = documents(template)[0]
    names = set(stated.get("inputs") or stated["spec"]["inputs"])
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == names


def test_no_template_installs_a_package_that_is_not_published():
    for template in (*SCRIPTS, FOLDER / "github_actions.yml"):
        for text in scripts(documents(template)):
            assert not re.search(r"install[^\n]* \"?nearpeak", text), template.name


def test_the_policy_of_the_templates_is_good():
    rules = read_policy(FOLDER / "nearpeak-gate.toml").rules
    assert {rule.baseline for rule in rules} <= set(BASELINES)
    assert len(rules) == 3


def test_the_page_on_history_names_every_template():
    page = (ROOT / "docs" / "guide" / "history.md").read_text(encoding="utf-8")
    assert all(f"../ci/{file.name}" in page for file in FOLDER.glob("*.yml"))


def test_the_image_copies_files_and_installs_extras_that_exist_and_names_commands_that_do():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE) for word in line.split()[:-1]]
    assert "pyproject.toml" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(r'install [^"]*"\.\[([\w,]+)\]"', text)[1].split(",")
    assert {*extras} <= {*project["optional-dependencies"]}
    commands = generate_reference.commands()
    for words in map(shlex.split, re.findall(r"^# +docker run .*? nearpeak (.*)", text, re.MULTILINE)):
        known = {option for parameter in commands[f"nearpeak {words[0]}"].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words


@pytest.fixture
def job(tmp_path):
    """A clone with a remote, and the action's scripts run in it as a job of GitHub would."""
    repository, programs = tmp_path / "repository", tmp_path / "bin"
    programs.mkdir()
    for name, line in (
        ("python", f'echo "$@" >> {tmp_path}/installed'),
        ("nearpeak", f'{sys.executable} -m nearpeak "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    run("git", "init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    run("git", "init", "--quiet", "--initial-branch", "main", str(repository))
    (repository / "cases.jsonl").write_text('{"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "bf16"}\n')
    (repository / "nearpeak-gate.toml").write_text(POLICY)
    run("git", "remote", "add", "origin", "../origin.git", cwd=repository)
    (action,) = documents(ACTION)
    inputs = {name: one.get("default", "") for name, one in action["inputs"].items()}
    inputs |= {
        "cases": "cases.jsonl",
        "runner": "sim",
        "target": "h200_sxm",
        "launches": "2",
        "budget": "20 ms",
        "token": "",
    }

    def filled(text):
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)
        return text.replace("${{ github.action_path }}", str(ROOT))

    def ran(kind, event):
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
        run(*git, "commit", "--quiet", "--allow-empty", "--message", kind, cwd=repository)
        (tmp_path / "event.json").write_text(json.dumps({"repository": {"default_branch": "main"}, **event}))
        environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": kind, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_REF_NAME": "main",
            "GITHUB_REPOSITORY": "team/kernels", "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }  # fmt: skip
        for step in action["runs"]["steps"]:
            own = {name: filled(text) for name, text in step.get("env", {}).items()}
            done = run("bash", "-e", "-c", step["run"], cwd=repository, check=False, env=environment | own)
        return done.returncode, done.stdout + done.stderr

    return ran


def run(*words, check=True, **more):
    return subprocess.run(words, check=check, capture_output=True, text=True, **more)


def test_the_action_keeps_the_history_of_main_and_judges_a_fork_by_it_without_writing(job, tmp_path):
    code, text = job("push", {})
    assert (code, "main has no history before this run" in text) == (0, True), text
    kept = run("git", "ls-remote", str(tmp_path / "origin.git"), "refs/heads/nearpeak-history").stdout
    assert kept
    code, text = job("pull_request", {"pull_request": FORK})
    assert (code, "no comment: a fork's job may not write" in text) == (0, True), text
    assert run("git", "ls-remote", str(tmp_path / "origin.git"), "refs/heads/nearpeak-history").stdout == kept
    assert (tmp_path / "output").read_text() == "code=0\ncode=0\n"
    assert "nearpeak-gate" in (tmp_path / "summary").read_text()
    assert (tmp_path / "installed").read_text().splitlines()[0] == f"-m pip install --quiet {ROOT}[torch]"
