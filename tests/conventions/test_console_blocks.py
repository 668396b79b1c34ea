"""What documents show in `console` blocks is what the program prints; blocks like `toml NAME` become files."""

import doctest
import os
import pty
import re
import shlex
import subprocess
import sys

import pytest
from house_rules import ROOT

pytestmark = pytest.mark.slow
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def has_console_block(document):
    return any(kind == "console" for kind, _, _ in BLOCK.findall(document.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "document", filter(has_console_block, DOCUMENTS), ids=lambda document: str(document.relative_to(ROOT))
)
def test_console_blocks_show_what_the_program_prints(document, tmp_path):
    for kind, name, text in BLOCK.findall(document.read_text(encoding="utf-8")):
        if name and kind != "console":
            (tmp_path / name).write_text(text, encoding="utf-8")
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            command, _, wanted = part.partition("\n")
            got = printed(shlex.split(command), tmp_path)
            assert doctest.OutputChecker().check_output(wanted, got, FLAGS), f"{command}\n--- prints ---\n{got}"


def printed(command, folder):
    """What the command prints on a terminal of 100 columns, with its exit code when that is not 0."""
    assert command[0] == "nearpeak", "console blocks run nearpeak only; use `sh` for what is not run"
    ours, theirs = pty.openpty()
    place = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "XDG_DATA_HOME": str(folder / "data")}
    whole = [sys.executable, "-m", "nearpeak", *command[1:]]
    with subprocess.Popen(whole, stdout=theirs, stderr=subprocess.STDOUT, cwd=folder, env=place) as process:
        os.close(theirs)
        text = b"".join(iter(lambda: _read(ours), b"")).decode().replace("\r\n", "\n")
        code = process.wait(timeout=120)
    os.close(ours)
    # A person is told once a machine that loops are compiled; whether they were depends on what ran before.
    text = re.sub(r"^compiling once for this machine.*\n", "", text, flags=re.MULTILINE)
    return text + (f"[exit code {code}]\n" if code else "")


def _read(terminal):
    """The next piece of output; the end of a terminal is an error on Linux."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
