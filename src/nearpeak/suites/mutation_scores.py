"""Mutation scores of cases, read from a file: the share of wrong implementations that each case detects."""

from typing import Any

from nearpeak.base.input_files import json_value
from nearpeak.errors import SpecError


def read_scores(text: str, where: str) -> dict[str, float]:
    """Return the score of each case by digest, from JSON lines with `digest`, `killed` and `survived`.

    `killed` and `survived` are numbers of mutants or lists of their names; mutants that answer the same as the
    original belong to neither. A case without any mutant has no score.

    Raises:
        SpecError: a line is something else, or two lines disagree about a case; the line is named.

    >>> read_scores('{"digest": "ab", "killed": 3, "survived": ["dropped_tail"]}', "scores.jsonl")
    {'ab': 0.75}
    """
    scores: dict[str, float] = {}
    whole, _, last = text.rpartition("\n")
    if _is_partial(last):
        text = whole
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        digest, killed, survived = _row(line, f"{where}:{number}")
        if killed + survived == 0:
            continue
        score = killed / (killed + survived)
        if scores.setdefault(digest, score) != score:
            raise SpecError(f"{where}:{number}: case {digest[:12]} has another score on an earlier line")
    return scores


def _is_partial(line: str) -> bool:
    """Return whether a line of `nearpeak qualify` is still being written, or was truncated."""
    try:
        json_value(line)
    except ValueError:
        return _HEAD.startswith(line[: len(_HEAD)])
    return False


_HEAD = '{"digest":'
"""How lines of `nearpeak qualify` begin."""


def _row(line: str, where: str) -> tuple[str, int, int]:
    try:
        row = json_value(line)
        return str(row["digest"]), _count(row["killed"]), _count(row["survived"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise SpecError(f"{where}: needs digest, killed and survived ({type(error).__name__}: {error})") from None


def _count(stated: Any) -> int:
    count = len(stated) if isinstance(stated, list) else stated
    if type(count) is not int or count < 0:
        raise ValueError(f"{count!r} is not a number of mutants")
    return count
