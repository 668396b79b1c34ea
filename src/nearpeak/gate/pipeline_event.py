"""Events of GitHub Actions and GitLab CI: the branch that is measured, its review, and what the job may write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import json_value, text_of_file
from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEvent:
    """Why a pipeline runs, as far as measuring and judging depend on it."""

    provider: str
    """`github` or `gitlab`."""
    branch: str
    """Branch under which results are kept: `main`, `pr-12`, `mr-12`, `tag-v1`."""
    main: str
    """Default branch of the repository, whose history is the baseline."""
    is_review: bool
    """Whether a pull or merge request is measured."""
    is_fork: bool
    """Whether its commits come from another repository, so that the job's token may not write."""
    comments_url: str = ""
    """Address of the comments of the review; empty without one."""
    comment_url: str = ""
    """Address below which one comment is edited."""

    @property
    def keeps_history(self) -> bool:
        """Return whether the results belong to the history of the default branch.

        >>> of = {"provider": "github", "main": "main", "is_review": False, "is_fork": False}
        >>> [PipelineEvent(branch=branch, **of).keeps_history for branch in ("main", "topic")]
        [True, False]
        """
        return not self.is_review and self.branch == self.main


def pipeline_event(environment: Mapping[str, str]) -> PipelineEvent:
    """Return the event that the variables of a job describe.

    Raises:
        SpecError: they are of no known service, or of an event on which foreign code would run with a writing token.

    >>> pipeline_event({"GITLAB_CI": "true", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}).branch
    'main'
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        return _github(environment)
    if environment.get("GITLAB_CI") == "true":
        return _gitlab(environment)
    raise SpecError(
        "ci: runs in a job of GitHub Actions or GitLab CI; elsewhere use 'nearpeak measure' and 'nearpeak gate'"
    )


def _github(environment: Mapping[str, str]) -> PipelineEvent:
    """Return an event of GitHub Actions, whose details are in a file."""
    kind, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    if kind == "pull_request_target":
        raise SpecError(
            "ci: on pull_request_target a fork's code would run with a token that may write; use pull_request"
        )
    event: Any = json_value(text_of_file(Path(path))) if path else {}
    main = (event.get("repository") or {}).get("default_branch") or "main"
    request = event.get("pull_request")
    if kind != "pull_request" or request is None:
        name = environment.get("GITHUB_REF_NAME", "")
        branch = f"tag-{name}" if environment.get("GITHUB_REF_TYPE", "") == "tag" else name or main
        return PipelineEvent(provider="github", branch=branch, main=main, is_review=False, is_fork=False)
    repository = environment.get("GITHUB_REPOSITORY", "")
    source = ((request.get("head") or {}).get("repo") or {}).get("full_name", "")  # none where the fork is deleted
    issues = f"{environment.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{repository}/issues"
    return PipelineEvent(
        provider="github", branch=f"pr-{request['number']}", main=main,
        is_review=True, is_fork=source != repository, comments_url=f"{issues}/{request['number']}/comments",
        comment_url=f"{issues}/comments",
    )  # fmt: skip


def _gitlab(environment: Mapping[str, str]) -> PipelineEvent:
    """Return an event of GitLab CI, whose details are variables."""
    main = environment.get("CI_DEFAULT_BRANCH", "main")
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    if not number:
        tag = environment.get("CI_COMMIT_TAG", "")
        branch = f"tag-{tag}" if tag else environment.get("CI_COMMIT_BRANCH", "") or main
        return PipelineEvent(provider="gitlab", branch=branch, main=main, is_review=False, is_fork=False)
    # A pipeline of a fork runs in the fork: the project of the request, whose notes these are, is another one.
    target = environment.get("CI_MERGE_REQUEST_PROJECT_PATH", "") or environment.get("CI_PROJECT_PATH", "")
    project_id = environment.get("CI_MERGE_REQUEST_PROJECT_ID", "") or environment.get("CI_PROJECT_ID", "")
    project = f"{environment.get('CI_API_V4_URL', '')}/projects/{project_id}"
    notes = f"{project}/merge_requests/{number}/notes"
    source = environment.get("CI_MERGE_REQUEST_SOURCE_PROJECT_PATH", "")
    return PipelineEvent(
        provider="gitlab", branch=f"mr-{number}", main=main,
        is_review=True, is_fork=source != target, comments_url=notes, comment_url=notes,
    )  # fmt: skip
