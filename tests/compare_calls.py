"""Run each call of `kept_calls.txt` on this checkout and on an earlier commit, and name those whose answers differ.

python tests/compare_calls.py COMMIT [FILE]
"""

import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALLS = Path(__file__).with_name("kept_calls.txt")
PLACE = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
PROGRAM = """
import sys
sys.argv = ["nearpeak", *sys.argv[1:]]
from nearpeak.__main__ import main
main()
"""


def answers(source: Path, calls: list[str]) -> dict[str, tuple[int, str]]:
    """Return exit code and output of each call on a source tree; the calls share a folder, and follow one another."""
    known = {}
    with tempfile.TemporaryDirectory(prefix="np-kept-calls-") as folder:
        variables = {**os.environ, **PLACE, "PYTHONPATH": str(source), "XDG_DATA_HOME": f"{folder}/data"}
        for call in calls:
            ran = subprocess.run(
                [sys.executable, "-c", PROGRAM, *shlex.split(call)], cwd=folder, env=variables, capture_output=True,
                text=True, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            text = (ran.stdout + ran.stderr).replace(folder, "FOLDER").replace(str(source), "SOURCE")
            known[call] = (ran.returncode, text)
    return known


def differences(before: tuple[int, str], after: tuple[int, str]) -> list[str]:
    """Return the exit codes, or the fields of JSON or lines of text, that differ.

    >>> differences((0, '{"a": 1, "b": 2}'), (0, '{"a": 1, "b": 3}'))
    ['b: 2 -> 3']
    >>> differences((0, "one line"), (2, "one line"))
    ['exit code 0 -> 2']
    """
    found = [f"exit code {before[0]} -> {after[0]}"] if before[0] != after[0] else []
    try:
        old, new = json.loads(before[1]), json.loads(after[1])
    except ValueError:
        old, new = (dict(enumerate(text.splitlines(), 1)) for _, text in (before, after))
    if not isinstance(old, dict) or not isinstance(new, dict):
        old, new = {"answer": old}, {"answer": new}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return found + [f"{name}: {str(old.get(name))[:60]} -> {str(new.get(name))[:60]}" for name in names[:5]]


def main(commit: str, file: Path = CALLS) -> int:
    """Print what differs, call by call, and return 1 if anything does."""
    calls = file.read_text(encoding="utf-8").splitlines()
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    files = tarfile.open(fileobj=io.BytesIO(archive))  # noqa: SIM115
    with files, tempfile.TemporaryDirectory(prefix="np-earlier-") as earlier:
        files.extractall(earlier, filter="data")
        before, after = answers(Path(earlier) / "src", calls), answers(ROOT / "src", calls)
    changed = {call: found for call in calls if (found := differences(before[call], after[call]))}
    for call, found in changed.items():
        print(f"nearpeak {call}", *found, sep="\n    ")
    print(f"{len(calls) - len(changed)} of {len(calls)} calls answer as before")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(Path, sys.argv[2:])))
