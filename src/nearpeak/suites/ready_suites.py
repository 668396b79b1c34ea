"""Ready-made suites that ship with nearpeak, built from public models and rules."""

from importlib.resources import files

from nearpeak.base.registry import unknown_name
from nearpeak.core.answers.suite import Suite
from nearpeak.suites.suite_file import load_text

_FOLDER = files("nearpeak.suites") / "ready"


def ready_names() -> tuple[str, ...]:
    """Return the names of the ready-made suites."""
    return tuple(sorted(file.name.removesuffix(".jsonl") for file in _FOLDER.iterdir() if file.name.endswith(".jsonl")))


def ready_suite(name: str) -> Suite:
    """Return a ready-made suite.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in ready_names():
        raise unknown_name("ready-made suite", name, ready_names())
    return load_text((_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8"), f"{name}.jsonl")
