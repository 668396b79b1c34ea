"""A PostgreSQL server for tests: its own folder, a Unix socket, no network, gone when the tests are."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "max_connections=50")


def folder_of_programs():
    """Where `initdb` lies: on the path, or where Debian puts it; none where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return (
        Path(found).resolve().parent if found else next((path for path in places if (path / "initdb").exists()), None)
    )


def other_user():
    """PostgreSQL refuses to run as root: then another user runs it."""
    if os.getuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


class Server:
    """A server of its own; `place` names a new, empty schema: a database for each test would be half a gigabyte."""

    def __init__(self):
        self.programs, self.user = folder_of_programs(), other_user()
        self.folder = Path(tempfile.mkdtemp(prefix="np-pg-"))
        if self.user:
            shutil.chown(self.folder, self.user)
        self._run("initdb", "--pgdata", str(self.folder / "data"), "--auth=trust", "--username=postgres", "--no-sync")
        self.start()

    def place(self):
        import psycopg

        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}&options=-csearch_path%3D{name}"

    def start(self):
        words = " ".join((*OPTIONS, "-k", str(self.folder)))
        log = ("--log", str(self.folder / "log"))
        self._run("pg_ctl", "start", "--wait", "--pgdata", str(self.folder / "data"), *log, "--options", words)

    def stop(self, mode="fast"):
        self._run("pg_ctl", "stop", "--pgdata", str(self.folder / "data"), "--mode", mode)

    def close(self):
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program, *arguments):
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
