"""The store on a branch: fetched, replaced by one commit, and never over another job's."""

import subprocess

import pytest

from nearpeak.errors import StoreError
from nearpeak.gate.history_branch import FILE, fetch_history, publish_history

BRANCH = "nearpeak-history"


def git(folder, *words):
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clones(tmp_path):
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        git(tmp_path, "init", "--quiet", "--initial-branch", "main", folder.name)
        git(folder, "remote", "add", "origin", "../origin.git")
    return folders


def test_a_store_is_kept_and_fetched_by_another_job(clones, tmp_path):
    first, second = clones
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    assert fetch_history(first, "origin", BRANCH, store) == ""
    assert not store.exists()
    store.write_bytes(b"SQLite\0one")
    assert publish_history(first, "origin", BRANCH, store, "")
    assert fetch_history(second, "origin", BRANCH, copy)
    assert copy.read_bytes() == store.read_bytes()
    assert git(second, "rev-parse", "--is-shallow-repository") == "false"


def test_of_two_jobs_the_second_learns_of_the_first_and_goes_on_from_it(clones, tmp_path):
    first, second = clones
    store = tmp_path / "store.db"
    store.write_bytes(b"0")
    publish_history(first, "origin", BRANCH, store, "")
    before = fetch_history(first, "origin", BRANCH, store)
    assert fetch_history(second, "origin", BRANCH, store) == before
    store.write_bytes(b"of the first")
    assert publish_history(first, "origin", BRANCH, store, before)
    store.write_bytes(b"of the second")
    assert not publish_history(second, "origin", BRANCH, store, before)
    now = fetch_history(second, "origin", BRANCH, store)
    assert store.read_bytes() == b"of the first"
    assert publish_history(second, "origin", BRANCH, store, now)


def test_a_job_that_saw_no_history_does_not_replace_one(clones, tmp_path):
    first, second = clones
    store = tmp_path / "store.db"
    store.write_bytes(b"0")
    assert publish_history(first, "origin", BRANCH, store, "")
    store.write_bytes(b"1")
    assert not publish_history(second, "origin", BRANCH, store, "")


def test_the_branch_holds_one_commit_however_often_it_is_renewed(clones, tmp_path):
    store, commit = tmp_path / "store.db", ""
    for number in range(3):
        store.write_bytes(b"%d" % number)
        assert publish_history(clones[0], "origin", BRANCH, store, commit)
        commit = fetch_history(clones[0], "origin", BRANCH, store)
    assert git(tmp_path / "origin.git", "rev-list", "--count", BRANCH) == "1"
    assert git(tmp_path / "origin.git", "ls-tree", "--name-only", BRANCH) == FILE


def test_a_remote_that_is_not_there_and_a_branch_of_something_else_are_errors(clones, tmp_path):
    with pytest.raises(StoreError, match=r"nowhere cannot be read: fatal: .nowhere."):
        fetch_history(clones[0], "nowhere", BRANCH, tmp_path / "store.db")
    git(clones[0], "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "--allow-empty", "-m", "x")
    git(clones[0], "push", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}")
    with pytest.raises(StoreError, match=f"branch {BRANCH} holds no {FILE}"):
        fetch_history(clones[0], "origin", BRANCH, tmp_path / "store.db")
