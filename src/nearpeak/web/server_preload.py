"""Background compilation of the search and prediction code that pages use, in a separate process."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

LONGEST_S = 300.0
"""Time after which a machine is believed not to compile at all; pages then do without being prepared."""
_TARGET = "h200_sxm"
_CASES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("gemm", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"}),
    ("attention", {"batch": 1, "heads": 8, "q": 128, "kv": 128, "dim": 64, "dtype": "bf16"}),
    ("softmax", {"rows": 256, "columns": 256, "dtype": "bf16"}),
)


def compile_aside() -> None:
    """Compile in another process, and return when that is done; the result lies in the user's cache."""
    with suppress(OSError, subprocess.SubprocessError):
        words = [sys.executable, "-P", "-m", "nearpeak.web.server_preload"]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=False, timeout=LONGEST_S)  # fmt: skip


def compile_here() -> None:
    """Search a short series and predict a few cases, which compiles the code of both or loads it from the cache."""
    from nearpeak.base.compilation import compile_at_first_call
    from nearpeak.judgement.change_points import changes
    from nearpeak.ops import case
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.targets import target_of

    compile_at_first_call()
    changes([1.0 + 0.001 * (place % 7) for place in range(40)])
    for op, axes in _CASES:
        predict_case(case(op, **axes), target_of(_TARGET))


if __name__ == "__main__":
    compile_here()
