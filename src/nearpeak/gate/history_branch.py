"""A store kept on a branch of a git repository, replaced under a lock that git itself holds."""

import os
import subprocess
from pathlib import Path

from nearpeak.errors import StoreError

FILE = "history.db"
_ABSENT_CODE = 2
"""Exit code of `git ls-remote --exit-code` where the remote has no such branch."""
_AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "nearpeak"), ("EMAIL", "nearpeak@localhost"))
}


def fetch_history(repository: Path, remote: str, branch: str, file: Path) -> str:
    """Write the store of a branch into `file`, and return its commit; empty, and no file, where there is no branch.

    Raises:
        StoreError: the remote cannot be read, or the branch holds no store.
    """
    file.unlink(missing_ok=True)
    reference = f"refs/heads/{branch}"
    listing = _git(repository, "ls-remote", "--exit-code", remote, reference)
    if listing.returncode == _ABSENT_CODE:
        return ""
    _succeeded(listing, f"{remote} cannot be read")
    commit = listing.stdout.decode().split()[0]
    _succeeded(_git(repository, "fetch", "--quiet", remote, commit), f"{branch} cannot be fetched")
    shown = _git(repository, "cat-file", "blob", f"{commit}:{FILE}")
    _succeeded(shown, f"branch {branch} holds no {FILE}")
    file.write_bytes(shown.stdout)
    return commit


def publish_history(repository: Path, remote: str, branch: str, file: Path, expected: str) -> bool:
    """Make `file` the store of a branch, unless another job has done so since: then return false and change nothing.

    The branch holds one commit without a parent, so that old stores do not stay in the repository.

    Args:
        expected: commit of the branch that the store was made from; empty where there was none.

    Raises:
        StoreError: the remote refuses the job.
    """
    blob = _value(_git(repository, "hash-object", "-w", "--no-filters", str(file.resolve())))
    tree = _value(_git(repository, "mktree", input_bytes=f"100644 blob {blob}\t{FILE}\n".encode()))
    commit = _value(_git(repository, "commit-tree", tree, "-m", "Keep the history of measurements"))
    reference = f"refs/heads/{branch}"
    pushed = _git(repository, "push", "--quiet", f"--force-with-lease={reference}:{expected}", remote,
                  f"{commit}:{reference}")  # fmt: skip
    message = pushed.stderr.decode(errors="replace")
    if pushed.returncode and ("stale info" in message or "failed to lock" in message or "cannot lock ref" in message):
        return False
    _succeeded(pushed, f"{branch} cannot be pushed to {remote}")
    return True


def _git(repository: Path, *arguments: str, input_bytes: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], input=input_bytes, capture_output=True, check=False,
        env={**os.environ, **_AUTHOR, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
    )  # fmt: skip


def _value(made: subprocess.CompletedProcess[bytes]) -> str:
    _succeeded(made, "git")
    return made.stdout.decode().strip()


def _succeeded(made: subprocess.CompletedProcess[bytes], what: str) -> None:
    if made.returncode:
        lines = made.stderr.decode(errors="replace").strip().splitlines() or [f"git ended with {made.returncode}"]
        reason = next((line for line in lines if line.startswith(("fatal:", "error:", " !"))), lines[-1])
        raise StoreError(f"history: {what}: {reason.strip()}")
