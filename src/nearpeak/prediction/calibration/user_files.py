"""What scalars of a file that a call names are called, so that those that ship are told from them."""

from pathlib import Path

from nearpeak.core.answers.prediction import Calibration


def label_of(file: Path) -> str:
    """Return how the names of scalars begin that are of a user's own file."""
    return f"{file.stem} "


def is_given(found: Calibration, file: Path) -> bool:
    """Say whether scalars are of the user's own file."""
    return found.name.startswith(label_of(file))
