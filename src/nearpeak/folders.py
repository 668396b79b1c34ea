"""Where a user's own files lie: folders for data and for what can be made again, as the system has them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Not platformdirs: `make test-device` runs from the sources on GPU machines where nothing can be installed.
_NAME = "nearpeak"


def data_folder() -> Path:
    """Return the folder of the user's own targets, calibrations and results.

    >>> data_folder().name
    'nearpeak'
    """
    return folder("XDG_DATA_HOME", (".local/share", "Library/Application Support", ""), sys.platform, os.environ)


def cache_folder() -> Path:
    """Return the folder of what can be made again."""
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
