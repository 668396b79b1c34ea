"""What documents show in `console` blocks is what the program prints; blocks like `toml NAME` become files."""

import doctest
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from house_rules import ROOT

pytestmark = pytest.mark.slow
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACE = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def has_console_block(document):
    return any(kind == "console" for kind, _, _ in BLOCK.findall(document.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def server():
    """A process that has imported what commands need: each is a fork of it, on a terminal of its own."""
    words = [sys.executable, str(Path(__file__).with_name("command_server.py"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(words, **pipes, env={**os.environ, **PLACE}) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


@pytest.mark.parametrize(
    "document", filter(has_console_block, DOCUMENTS), ids=lambda document: str(document.relative_to(ROOT))
)
def test_console_blocks_show_what_the_program_prints(document, tmp_path, server):
    for kind, name, text in BLOCK.findall(document.read_text(encoding="utf-8")):
        if name and kind != "console":
            (tmp_path / name).write_text(text, encoding="utf-8")
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            command, _, wanted = part.partition("\n")
            got = printed(server, shlex.split(command), tmp_path)
            assert doctest.OutputChecker().check_output(wanted, got, FLAGS), f"{command}\n--- prints ---\n{got}"


def printed(server, command, folder):
    """What the command prints on a terminal of 100 columns, with its exit code when that is not 0."""
    assert command[0] == "nearpeak", "console blocks run nearpeak only; use `sh` for what is not run"
    ours, theirs = pty.openpty()
    request = {
        "words": command[1:], "folder": str(folder), "terminal": os.ttyname(theirs),
        "variables": {**os.environ, **PLACE, "XDG_DATA_HOME": str(folder / "data")},
    }  # fmt: skip
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    code, pieces = None, []
    while code is None or select.select([ours], [], [], 0)[0]:
        ready, _, _ = select.select([ours, *([server.stdout] if code is None else [])], [], [], 300)
        assert ready, f"nearpeak {command}: nothing for five minutes"
        if ours in ready:
            pieces.append(os.read(ours, 65536))
        elif server.stdout in ready:
            code = int(server.stdout.readline())
    os.close(theirs)
    os.close(ours)
    text = b"".join(pieces).decode().replace("\r\n", "\n")
    # A person is told once a machine that loops are compiled; whether they were depends on what ran before.
    text = re.sub(r"^compiling once for this machine.*\n", "", text, flags=re.MULTILINE)
    return text + (f"[exit code {code}]\n" if code else "")
