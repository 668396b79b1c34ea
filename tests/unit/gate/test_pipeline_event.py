"""Events of pipelines: pushes, pull and merge requests of the repository and of forks, and what must not run."""

import json

import pytest

from nearpeak.errors import SpecError
from nearpeak.gate.pipeline_event import pipeline_event

REQUEST = {
    "action": "synchronize", "number": 12, "repository": {"full_name": "team/kernels", "default_branch": "trunk"},
    "pull_request": {
        "number": 12, "base": {"ref": "trunk", "repo": {"full_name": "team/kernels"}},
        "head": {"ref": "faster", "sha": "0" * 40, "repo": {"full_name": "team/kernels", "fork": False}},
    },
}  # fmt: skip
"""A pull_request event as GitHub documents it, without the fields that nothing here reads."""
GITLAB = {
    "GITLAB_CI": "true", "CI_PROJECT_ID": "42", "CI_PROJECT_PATH": "team/kernels", "CI_DEFAULT_BRANCH": "main",
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
}  # fmt: skip


@pytest.fixture
def github(tmp_path):
    def event(kind, content, **more):
        path = tmp_path / "event.json"
        path.write_text(json.dumps(content))
        return pipeline_event(
            {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": kind, "GITHUB_EVENT_PATH": str(path),
             "GITHUB_REPOSITORY": "team/kernels", "GITHUB_API_URL": "https://api.github.com", **more}
        )  # fmt: skip

    return event


def test_a_push_to_the_default_branch_alone_keeps_history(github):
    content = {"repository": {"default_branch": "trunk"}}
    assert github("push", content, GITHUB_REF_NAME="trunk").keeps_history
    assert not github("push", content, GITHUB_REF_NAME="topic").keeps_history


def test_a_pull_request_is_measured_under_its_number(github):
    event = github("pull_request", REQUEST)
    assert (event.branch, event.main, event.is_review, event.is_fork) == ("pr-12", "trunk", True, False)
    assert event.comments_url == "https://api.github.com/repos/team/kernels/issues/12/comments"
    assert not event.keeps_history


@pytest.mark.parametrize("head", [{"repo": {"full_name": "other/kernels"}}, {"repo": None}])
def test_a_fork_and_a_deleted_fork_may_not_write(github, head):
    event = github("pull_request", {**REQUEST, "pull_request": {**REQUEST["pull_request"], "head": head}})
    assert (event.is_review, event.is_fork) == (True, True)


def test_foreign_code_never_runs_with_a_token_that_may_write(github):
    with pytest.raises(SpecError, match="use pull_request"):
        github("pull_request_target", REQUEST)


def test_merge_requests_of_gitlab():
    own = {**GITLAB, "CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "team/kernels"}
    event = pipeline_event(own)
    assert (event.branch, event.is_fork) == ("mr-7", False)
    assert event.comments_url.endswith("/projects/42/merge_requests/7/notes")
    assert pipeline_event({**own, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "other/kernels"}).is_fork
    assert pipeline_event({**GITLAB, "CI_COMMIT_BRANCH": "main"}).keeps_history


def test_elsewhere_the_command_says_what_to_use():
    with pytest.raises(SpecError, match="'nearpeak measure' and 'nearpeak gate'"):
        pipeline_event({})
