"""Runs commands of nearpeak on a terminal, each in a fork of one process that has imported what most of them need."""

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

PRELOADED = ("torch", "numba")
"""Packages whose import takes longer than most commands."""
ROOMS = ("api", "bounds", "core", "ops", "prediction", "reports", "targets")
"""Rooms that most commands import: that and the reading of tables is nine tenths of what a short command takes."""
COMMAND = ("analyze", "resnet-50", "--target", "l4")
"""Command that reads the tables which most commands read."""


def serve():
    """Answer each request, a line of JSON with words, folder, variables and terminal, with the exit code."""
    from nearpeak.base import isolation
    from nearpeak.cli import application
    from nearpeak.frontends.child_capture import PRELOAD, WITH_TRANSFORMERS, run_isolated

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.shared_captures import share_captures

    del sys.path[0]  # commands do not find the tests
    application()
    for name in PRELOADED:
        importlib.import_module(name)
    for preload in (PRELOAD, WITH_TRANSFORMERS):  # commands share the servers that capture for them, as calls do
        run_isolated("platform:node", {}, "", preload=preload)
    for server in isolation._SERVERS.values():
        server._process.poll = lambda: None  # to a fork it is no child, and would seem to have ended
    share_captures()
    _warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _warm_up():
    """Import what commands import and read what ships with the package, as every command would do again."""
    for room in ROOMS:
        package = importlib.import_module(f"nearpeak.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    from nearpeak.__main__ import main

    words, variables = (sys.argv, sys.orig_argv), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["XDG_DATA_HOME"] = folder  # nothing of the user's own is read
        sys.argv, sys.orig_argv = ["nearpeak", *COMMAND], [sys.executable, "-m", "nearpeak", *COMMAND]
        with contextlib.suppress(SystemExit):
            main()
    sys.argv, sys.orig_argv = words
    os.environ.clear()
    os.environ.update(variables)
    gc.collect()
    gc.freeze()  # forks leave what they share as it is


def _run(words, folder, variables, terminal):
    """Run one command as `python -m nearpeak` does, with the terminal as its three files."""
    code = 70
    try:
        os.setsid()
        place = os.open(terminal, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(place, number)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        sys.argv, sys.orig_argv = ["nearpeak", *words], [sys.executable, "-m", "nearpeak", *words]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        from nearpeak.__main__ import main

        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
