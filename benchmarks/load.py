"""Background load for timing benchmarks: two busy loops, as `with busy():` or `python -m benchmarks.load COUNT`."""

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

COUNT = 2
_SPIN = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\nwhile True: pass"


@contextmanager
def busy(count: int = COUNT) -> Iterator[None]:
    """Keep `count` processes busy, each in a loop of its own, while the block runs; they die with this process."""
    loops = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    with busy(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT):
        ctypes.CDLL(None).pause()
        signal.pause()
