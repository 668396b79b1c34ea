"""Commits of a git repository with their position in the first-parent history."""

import subprocess
from pathlib import Path

from nearpeak.core.history.stored_run import Revision
from nearpeak.errors import SpecError, StoreError

_FIELDS = "%H%x00%P%x00%an%x00%at%x00%ct%x00%s"


def git_revision(folder: Path, name: str = "HEAD") -> Revision:
    """Return the commit called `name` of the repository in `folder`, with its position.

    Raises:
        SpecError: it is no repository, it is a shallow clone, or the commit is not in it.
    """
    sha = _sha(folder, name)
    position = int(_git(folder, "rev-list", "--first-parent", "--count", sha)) - 1
    return _revision(_git(folder, "log", "-1", f"--format={_FIELDS}", sha), repository_name(folder), position)


def git_history(folder: Path, branch: str = "HEAD") -> tuple[Revision, ...]:
    """Return the first-parent history of `branch`, oldest first.

    Raises:
        SpecError: as `git_revision`.
    """
    sha, name = _sha(folder, branch), repository_name(folder)
    lines = _git(folder, "log", "--first-parent", "--reverse", f"--format={_FIELDS}", sha).split("\n")
    return tuple(_revision(line, name, position) for position, line in enumerate(lines))


def repository_name(folder: Path) -> str:
    """Return a name of the repository that is equal in every clone: its remote URL without credentials.

    A repository without a remote is named by its folder.
    """
    try:
        url = _git(folder, "config", "--get", "remote.origin.url")
    except SpecError:
        return Path(_git(folder, "rev-parse", "--show-toplevel")).name
    scheme, sign, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if sign else url


def _sha(folder: Path, name: str) -> str:
    if not folder.is_dir():
        raise SpecError(f"{folder}: is no folder; --repository names that of a git repository")
    if _git(folder, "rev-parse", "--is-shallow-repository") == "true":
        raise SpecError(
            f"{folder}: is a shallow clone, so places of commits are unknown; 'git fetch --unshallow' first"
        )
    if name.startswith("-"):
        raise SpecError(f"commit {name!r}: is no name of a commit")
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except SpecError:
        raise SpecError(f"commit {name}: is not in the repository {folder}; fetch it, or name one that is") from None


def _revision(line: str, repository: str, position: int) -> Revision:
    sha, parents, author, authored_s, committed_s, subject = line.split("\x00", 5)
    return Revision(
        sha=sha, repository=repository, position=position, parent_sha=parents.partition(" ")[0], author=author,
        authored_ns=int(authored_s) * 10**9, committed_ns=int(committed_s) * 10**9, subject=subject,
    )  # fmt: skip


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except FileNotFoundError:
        raise StoreError("git: is not installed; commits are looked up with it") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or "nothing found"
        raise SpecError(f"{folder}: git {arguments[0]}: {reason[:200]}")
    return done.stdout.strip("\n")
