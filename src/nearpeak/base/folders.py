"""Folders for the user's configuration, data and cache files, and atomic writing of files."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nearpeak.errors import SpecError

# Not platformdirs: `make test-device` runs from the sources on GPU machines where nothing can be installed.
_NAME = "nearpeak"


def data_folder() -> Path:
    """Return the folder of the user's own targets, calibrations and results.

    >>> data_folder().name
    'nearpeak'
    """
    return folder("XDG_DATA_HOME", (".local/share", "Library/Application Support", ""), sys.platform, os.environ)


def cache_folder() -> Path:
    """Return the folder of cached files, which can be recreated."""
    return folder("XDG_CACHE_HOME", (".cache", "Library/Caches", "Cache"), sys.platform, os.environ)


def folder(variable: str, places: tuple[str, str, str], system: str, variables: Mapping[str, str]) -> Path:
    """Return the folder that a variable names, or the system's usual one below the user's home.

    Args:
        variable: of the XDG Base Directory Specification, which counts where it names an absolute path.
        places: the usual folder on Linux and its like, on macOS, and below the program's own folder on Windows.

    >>> where = (".cache", "Library/Caches", "Cache")
    >>> folder("XDG_CACHE_HOME", where, "linux", {"HOME": "/ada", "XDG_CACHE_HOME": "/fast"}).as_posix()
    '/fast/nearpeak'
    >>> folder("XDG_CACHE_HOME", where, "linux", {"HOME": "/ada", "XDG_CACHE_HOME": "fast"}).as_posix()
    '/ada/.cache/nearpeak'
    """
    stated = variables.get(variable, "").strip()
    if os.path.isabs(stated):
        return Path(stated) / _NAME
    home = Path(variables.get("HOME") or os.path.expanduser("~"))
    if system == "win32":
        return Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local") / _NAME / _NAME / places[2]
    return home / places[system == "darwin"] / _NAME


def refuse_folder(path: str | Path) -> None:
    """Refuse a folder where a file is to be read.

    >>> refuse_folder(os.curdir)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: .: is a folder; name a file in it
    """
    if Path(path).is_dir():
        raise SpecError(f"{path}: is a folder; name a file in it")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose content replaces `path` atomically at the end, or not at all after an error.

    The target of a link is replaced; pipes and devices are written to.

    Raises:
        SpecError: it cannot be written: the disk is full, or the folder may not be written to.
    """
    target = path.resolve()
    is_special = target.exists() and not target.is_file()
    try:
        with tempfile.TemporaryDirectory(dir=None if is_special else target.parent, prefix=".nearpeak-") as place:
            part = Path(place) / target.name
            yield part
            if is_special:
                target.write_bytes(part.read_bytes())
            else:
                part.replace(target)
    except Exception as error:
        reason = _reason(error)
        if not reason:
            raise
        raise SpecError(f"{path}: cannot be written: {reason}") from None


_ERRNO = re.compile(r'"errno":"([0-9]+)"')
"""How DuckDB's texts hold the system's number of an error."""


def _reason(error: Exception) -> str:
    """Return why a file could not be written; empty for an error of another kind."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if type(error).__name__ != "IOException":
        return ""
    number = _ERRNO.search(str(error))
    return os.strerror(int(number.group(1))) if number else str(error).partition("\n")[0]
