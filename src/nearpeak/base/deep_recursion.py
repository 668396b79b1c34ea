"""Temporary increase of Python's recursion limit, for recursion as deep as a program is long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_OPEN: list[int] = []
"""The limit before the first of the blocks that are open, once for each of them."""


@contextmanager
def deep_recursion(frame_count: int) -> Iterator[None]:
    """Let Python functions call one another `frame_count` frames deep while the block runs.

    The frames lie on the heap, so that no stack overflows; calls that go through C, such as a generator inside
    `all()`, are no such frames.

    >>> def depth(n): return n and 1 + depth(n - 1)
    >>> with deep_recursion(5000):
    ...     depth(4000)
    4000
    """
    with _LOCK:
        _OPEN.append(_OPEN[0] if _OPEN else sys.getrecursionlimit())
        sys.setrecursionlimit(max(sys.getrecursionlimit(), frame_count))
    try:
        yield
    finally:
        with _LOCK:
            before = _OPEN.pop()
            if not _OPEN:
                sys.setrecursionlimit(before)
