"""Recovery of truncated or damaged JSON: everything before the damage, with open brackets closed."""

import json
import re
from typing import Any

from nearpeak.base.input_files import json_value

_TOKEN = re.compile(r"""[\[\]{},]|"(?:[^"\\]|\\.)*+"?""", re.DOTALL)
"""A mark of the structure, or a text, which may be cut off."""
_MOST_DEPTH = 200


def partial_json(text: str) -> tuple[Any, str]:
    """Return the document and a description of its damage; empty if it is intact.

    Raises:
        ValueError: not even a part can be read, or it is nested too deeply.

    >>> partial_json('[{"a": 1}, {"a": 2}, {"a"')
    ([{'a': 1}, {'a': 2}], 'ends early at character 25')
    >>> partial_json('{"a": [1, 2')[0]
    {'a': [1]}
    """
    try:
        return json_value(text, strict=False), ""
    except json.JSONDecodeError as error:
        place = error.pos
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    cut, closers = _last_whole(text[:place])
    if cut < 0:
        raise ValueError(f"it is no JSON at character {place}")
    try:
        document = json_value(text[:cut] + closers, strict=False)
    except ValueError:
        raise ValueError(f"it is no JSON at character {place}") from None
    return document, f"{'ends early' if place >= len(text.rstrip()) - 1 else 'is damaged'} at character {place}"


def _last_whole(text: str) -> tuple[int, str]:
    """Return the end of the last whole value in `text`, and the closing brackets that are missing there."""
    stack: list[str] = []
    cut, closers = -1, ""
    for token in _TOKEN.finditer(text):
        mark, index = token[0], token.start()
        if mark in "[{":
            stack.append("]" if mark == "[" else "}")
            if len(stack) > _MOST_DEPTH:
                return -1, ""
            if mark == "[":
                cut, closers = index + 1, "".join(reversed(stack))
        elif mark in "]}":
            if not stack or stack.pop() != mark:
                return cut, closers
            cut, closers = index + 1, "".join(reversed(stack))
        elif mark == ",":
            cut, closers = index, "".join(reversed(stack))
    return cut, closers
