"""Lookup of suites by name: ready-made ones, or files of JSON lines."""

from importlib.resources import files
from pathlib import Path

from nearpeak.base.folders import refuse_folder
from nearpeak.base.input_files import border, text_of_file
from nearpeak.base.registry import unknown_name
from nearpeak.core.answers.suite import Suite
from nearpeak.errors import SpecError
from nearpeak.suites.suite_file import is_suite, load_text

_FOLDER = files("nearpeak.suites") / "ready"


def ready_names() -> tuple[str, ...]:
    """Return the names of the ready-made suites, which were built from public models and rules."""
    return tuple(sorted(file.name.removesuffix(".jsonl") for file in _FOLDER.iterdir() if file.name.endswith(".jsonl")))


def ready_suite(name: str) -> Suite:
    """Return a ready-made suite.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in ready_names():
        raise unknown_name("ready-made suite", name, ready_names())
    return load_text((_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8"), f"{name}.jsonl")


@border("suite")
def read_suite(name: str | Path) -> Suite:
    """Return the suite of a file, or the ready-made one of that name."""
    if str(name) in ready_names():
        return ready_suite(str(name))
    path = Path(name)
    refuse_folder(path)
    if not path.is_file():
        raise SpecError(f"{name}: no such file, nor a ready-made suite; there are {', '.join(ready_names())}")
    try:
        return load_text(text_of_file(path), path.name)
    except UnicodeDecodeError:
        raise SpecError(f"{name}: is not UTF-8 text; a suite is JSON lines") from None


def names_suite(name: str | Path) -> bool:
    """Return whether a source is a suite: a ready-made one, or a file with the header of a suite.

    >>> names_suite("llm_inference"), names_suite("llama-3-8b")
    (True, False)
    """
    return str(name) in ready_names() or holds_suite(Path(name))


def holds_suite(path: Path) -> bool:
    """Return whether `path` is a file with the header of a suite, of any version."""
    if path.suffix.lower() != ".jsonl" or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return is_suite(file.readline())
