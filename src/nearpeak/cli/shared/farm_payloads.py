"""Job payloads of `nearpeak farm submit`: captures by model and option values, a program and its comparison."""

import itertools
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.work.capture_options import COUNTS
from nearpeak.errors import SpecError

_TEXT = ("step", "dtype")


def capture_payloads(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return a payload for each model and each combination of what NAME=VALUE,… says.

    Raises:
        SpecError: no model, a file that is not there, a model that is not known, or a word that captures do not read.

    >>> [one["sequence"] for one in capture_payloads(["hf:bert", "sequence=128,512", "dtype=bf16"])]
    [128, 512]
    """
    sources, options = list[str](), dict[str, list[Any]]()
    for word in words:
        name, sign, values = word.partition("=")
        if sign and name in (*COUNTS, *_TEXT):
            options[name] = [_value(name, value) for value in values.split(",")]
        elif sign and not Path(word).exists():
            raise SpecError(f"farm submit capture: {word!r}: {name!r} is not one of {', '.join((*_TEXT, *COUNTS))}")
        else:
            sources.append(_source(word))
    if not sources:
        raise SpecError("farm submit capture: names no model; e.g. nearpeak farm submit capture hf:bert sequence=128")
    combinations = [dict(zip(options, value, strict=True)) for value in itertools.product(*options.values())]
    return [{"source": source, **value} for source in sources for value in combinations]


def _value(name: str, text: str) -> Any:
    if name in _TEXT:
        return text
    if not text.isdecimal() or int(text) < 1:
        raise SpecError(f"farm submit capture: {name}={text}: must be a whole number of at least 1")
    return int(text)


def _source(word: str) -> str:
    """Return a model as every host understands it: a file with its whole path, which must lie there too."""
    from nearpeak.frontends.huggingface.published_models import MODELS

    if word.startswith("hf:"):
        return word
    if Path(word).exists():
        return str(Path(word).resolve())
    if "/" in word or Path(word).suffix:
        raise SpecError(f"{word}: not found")
    MODELS[word]
    return word


def command_payloads(words: Sequence[str], against: str, beside: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the payload of a program, and of the one that it is compared with.

    Args:
        against: the other program as one text, with quotes as in a shell; empty for none.
        beside: limits and folder.

    Raises:
        SpecError: no program, quotes that do not end, or a path that depends on the folder while none is named.
    """
    if not words:
        raise SpecError("farm submit command: names no program; e.g. nearpeak farm submit command -- bench --quick")
    try:
        programs = [list(words), *([shlex.split(against)] if against else [])]
    except ValueError as error:
        raise SpecError(f"--against {against!r}: {str(error).lower()}") from None
    folder = str(beside.get("folder", ""))
    if folder and not os.path.isabs(folder):
        raise SpecError(f"--folder {folder}: must be a whole path, as the host that runs it has it")
    for program in programs:
        _check_found(program, folder)
    return [{"words": command, **beside} for command in programs]


def _check_found(words: Sequence[str], folder: str) -> None:
    """Refuse paths of this folder, which the program would not find: it runs in another folder."""
    if folder or not words:
        return
    here = [word for word in words if not os.path.isabs(word) and (os.sep in word or word.endswith((".py", ".sh")))]
    if words[0] in here or any(Path(word).is_file() for word in here):
        word = words[0] if words[0] in here else next(candidate for candidate in here if Path(candidate).is_file())
        raise SpecError(
            f"farm submit command: {word!r} is found from this folder only, and the program runs in an empty one; name "
            f"it whole ({Path(word).resolve()}), or the folder by --folder"
        )
