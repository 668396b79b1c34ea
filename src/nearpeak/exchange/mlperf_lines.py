"""Parser of MLPerf training logs: JSON events after the `:::MLLOG` mark."""

from collections.abc import Iterator
from typing import Any

from nearpeak.base.input_files import json_value

MARK = ":::MLLOG"


def marked_lines(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    r"""Yield number and event of each marked line, or an error text if the line holds no event.

    >>> list(marked_lines('0: :::MLLOG {"key": "run_start"}\nno mark\n:::MLLOG {"ke'))
    [(1, {'key': 'run_start'}), (3, 'no event follows :::MLLOG; was the log cut off?')]
    """
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, rest = line.partition(MARK)
        if not mark:
            continue
        try:
            row = json_value(rest)
        except ValueError:
            yield number, f"no event follows {MARK}; was the log cut off?"
            continue
        yield number, row if isinstance(row, dict) else f"what follows {MARK} is no object"
