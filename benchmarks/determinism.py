"""Whether two processes with different hash seeds write the same bytes for the same model."""

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks._figures import Figure

FIGURES = ("case_tables_that_differ",)
MODELS = (
    ("resnet-50", "--phase", "train"),
    ("llama-3-8b", "--phase", "train", "--sequence", "512"),
    ("bert-base", "--phase", "train"),
    ("mixtral-8x7b", "--sequence", "512"),
    ("whisper-small",),
)


def measure() -> Iterator[Figure]:
    """Yield the number of models whose case tables differ between two fresh processes."""
    differing = sum(_table(words, seed="1") != _table(words, seed="4711") for words in MODELS)
    yield Figure(
        name="case_tables_that_differ", value=differing, unit=f"of {len(MODELS)} models", bar="0", passed=differing == 0
    )


def _table(words: tuple[str, ...], *, seed: str) -> bytes:
    """Return the JSON lines that a fresh process prints."""
    command = [sys.executable, "-m", "nearpeak", "capture", *words, "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, check=True, capture_output=True, env=environment).stdout
