"""A search for a commit as one job: all of its rounds under one lease."""

import subprocess

import pytest

from nearpeak.errors import SpecError
from nearpeak.farm.kinds import KINDS


@pytest.fixture
def repository(tmp_path):
    """Eight commits, each with the time that its command states; from the sixth on it is longer."""
    folder = tmp_path / "repo"
    folder.mkdir()

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    shas = []
    for number in range(8):
        (folder / "time.txt").write_text("13 ms\n" if number >= 5 else "10 ms\n")
        (folder / "number.txt").write_text(f"{number}\n")
        git("add", "-A")
        git("commit", "-q", "-m", f"commit {number}")
        shas.append(git("rev-parse", "HEAD"))
    return folder, shas


def payload(repository, **more):
    folder, shas = repository
    return {"repository": str(folder), "run": "cat time.txt", "good": shas[0], "bad": shas[-1], "limit_s": 30.0} | more


def test_the_commit_is_found(repository):
    kind, asked = KINDS["bisect"], payload(repository)
    kind.check(asked)
    found = kind.run(asked)
    assert (found["verdict"], found["outcome"]) == ("regression", "found")
    assert [(one["before"], one["after"]) for one in found["culprits"]] == [(repository[1][4], repository[1][5])]


def test_no_slowdown_is_said(repository):
    found = KINDS["bisect"].run(payload(repository, bad=repository[1][4]))
    assert (found["outcome"], found["culprits"]) == ("no slowdown", [])


@pytest.mark.parametrize(
    "wrong", [{"run": " "}, {"good": "--upload-pack=x"}, {"limit_s": 0.0}, {"limit_s": float("nan")}, {"more": 1},
              {"bad": 7}],
)  # fmt: skip
def test_what_cannot_run_is_refused_when_it_is_submitted(repository, wrong):
    with pytest.raises(SpecError, match="bisect"):
        KINDS["bisect"].check(payload(repository, **wrong))
