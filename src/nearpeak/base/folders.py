"""Folders of the user's data and cached files, checks that no other user can change them, and atomic writing."""

import atexit
import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nearpeak.errors import SpecError

# Not platformdirs: `make test-device` runs from the sources on GPU machines where nothing can be installed.
_NAME = "nearpeak"
_COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_MOST_LINKS = 40
"""Links that Linux follows in a path."""


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

    For a user without a home it is one that cannot be made: nothing is cached, and nothing is read that others left.

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
    if not home.is_absolute():  # neither a variable nor the user database names one
        home = Path(os.devnull)
    if system == "win32":
        return Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local") / _NAME / _NAME / places[2]
    return home / places[system == "darwin"] / _NAME


def text_of(name: str | Path) -> str:
    """Return the name of a file as text that can be stored: bytes that are no text stand as escapes.

    >>> len(text_of(os.fsdecode(bytes([97, 255]))))
    5
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def refuse_folder(path: str | Path) -> None:
    """Refuse a folder where a file is to be read.

    >>> refuse_folder(os.curdir)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: .: is a folder; name a file in it
    """
    if Path(path).is_dir():
        raise SpecError(f"{path}: is a folder; name a file in it")


def why_shared(path: Path) -> str:
    """Return why another user could change a file, or what lies in a folder; empty where only its owner can.

    >>> why_shared(Path("/"))
    ''
    """
    if os.name != "posix":
        return ""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    return "other users may write to it; chmod go-w" if status.st_mode & 0o022 else ""


def why_foreign(path: Path) -> str:
    """Return why a name must not be written through: another user's link among everybody's files; empty where it may.

    Folders on the way, and what the user's own links lead through, count as the name itself does.

    In a folder such as /tmp, where all may make names, whoever follows such a link writes to a file of the other's
    choice.

    Source: Linux, Documentation/admin-guide/sysctl/fs.rst, protected_symlinks, the same rule; it is off on many hosts,
    and does not hold for a path that was resolved first.

    >>> why_foreign(Path("/"))
    ''
    """
    for link in _links(path) if os.name == "posix" else ():
        folder = link.parent.stat()
        is_everybodys = bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)
        if is_everybodys and link.lstat().st_uid not in (os.geteuid(), folder.st_uid):
            what = "is" if link == path.absolute() else f"leads through {link},"
            return f"{what} a link of another user in a folder where all may write"
    return ""


def _links(path: Path) -> Iterator[Path]:
    """Yield the links that a path leads through, in the order in which they are followed."""
    path = path.absolute()
    place, parts, count = Path(path.anchor), list(path.parts[:0:-1]), 0
    while parts and count < _MOST_LINKS:
        part = parts.pop()
        following = place.parent if part == os.pardir else place / part
        if following.is_symlink():
            yield following
            target, count = following.readlink(), count + 1
            place = Path(target.anchor) if target.is_absolute() else place
            parts += target.parts[:0:-1] if target.is_absolute() else target.parts[::-1]
        else:
            place = following


def is_private(folder: Path) -> bool:
    """Make a folder of the user alone where there is none, and say whether no other user can put files into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)
        return not why_shared(folder)
    except OSError:
        return False


def keep_compiled_code() -> None:
    """Have torch.compile keep its code in the user's cache folder, unless the user names another one.

    PyTorch's own choice is a folder of a known name among everybody's temporary files, which others may make first and
    fill with code that is then run. Without a cache folder that is the user's alone, the code lies in a new temporary
    folder, which ends with this process.

    Source: PyTorch, torch/_inductor/runtime/cache_dir_utils.py.
    """
    if _COMPILER_CACHE in os.environ:
        return
    folder = cache_folder() / "inductor"
    if not (is_private(folder.parent) and is_private(folder)):
        folder = Path(tempfile.mkdtemp(prefix="nearpeak-inductor-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_COMPILER_CACHE] = str(folder)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose content replaces `path` atomically at the end, or not at all after an error.

    The target of a link is replaced; pipes and devices are written to.

    Raises:
        SpecError: it cannot be written: the disk is full, the folder may not be written to, or the name is a link that
            another user put among everybody's files.
    """
    if why := why_foreign(path):
        raise SpecError(f"{path}: {why}; remove it, or name another file")
    is_special = path.exists() and not path.is_file()
    target = path if is_special else path.resolve()  # a pipe behind /dev/stdout has no other path
    try:
        with tempfile.TemporaryDirectory(dir=None if is_special else target.parent, prefix=".nearpeak-") as place:
            part = Path(place) / target.name
            yield part
            if target.is_file():  # what others could not read they cannot read afterwards
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            if is_special:
                target.write_bytes(part.read_bytes())
            else:
                part.replace(target)
    except BrokenPipeError:  # whoever reads standard output has seen enough
        raise
    except Exception as error:
        reason = _reason(error)
        if not reason:
            raise
        raise SpecError(f"{path}: cannot be written: {reason}") from None


def synchronise(folder: Path) -> None:
    """Have the names of a folder on disk, so that they survive a power cut; some network file systems cannot say so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def take_name(part: Path, path: Path) -> None:
    """Give a finished file its name, which must be free: of several processes at once one succeeds.

    Raises:
        FileExistsError: something has that name.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system: whoever makes the name may replace it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        part.replace(path)
    else:
        part.unlink()


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
