"""Reading of files that others made: what is no file is refused, and nothing is expanded beyond stated limits."""

import codecs
import functools
import json
import os
import re
import select
import stat
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from nearpeak.errors import MissingExtraError, NearpeakError, SpecError, shown
from nearpeak.units import show

_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")
MOST_BYTES = 256 << 20
"""Longest file that is read at once, and what a packed one may unpack to."""
MOST_RATIO = 300
"""Most bytes that a packed byte may become; profilers' traces pack 10 to 30 to 1, and gzip can reach 1,000."""
FREE_BYTES = 64 << 20
"""Unpacked bytes from which the ratio counts."""
MOST_MEMORY_BYTES = 768 << 20
"""Memory that the values of one JSON text may take, by an estimate from its marks."""
MOST_LINES = 1_000_000
"""Lines of a text in which each line is a reading or a case."""
MOST_TOML_BYTES = 4 << 20
"""Longest TOML text; Python's parser takes about a second per MB."""
MOST_KEY_PARTS = 64
"""Parts of a dotted key of TOML; the time of Python's parser grows with the square of their number."""
PATIENCE_S = 10.0
"""Time within which a pipe must give its first bytes, and its next."""
_MARK_BYTES = {"{": 240, "[": 120, ",": 60, ":": 40}
"""Memory of what stands behind a mark of JSON in CPython: an object or a list with its first values; one more value;
one more key."""
_KEY = re.compile(rf"""(?<![\w\-"'])(?:[\w\-"']++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}""")
_WRONG_KIND = re.compile(
    r"'(?P<kind>bool|int|float|str|list|dict|NoneType)' object "
    r"(?:has no attribute '(?P<method>get|items|keys|values|split|strip|lower|r?partition|startswith|endswith)'"
    r"|is not iterable|is not subscriptable)"
)
"""What Python says of a value of another kind than a reader takes it for."""
_WANTED = dict.fromkeys(("get", "items", "keys", "values"), "a table") | dict.fromkeys(
    ("split", "strip", "lower", "partition", "rpartition", "startswith", "endswith"), "a text",
)  # fmt: skip
_HELD = {
    "bool": "a truth value", "int": "a number", "float": "a number", "str": "a text", "list": "a list",
    "dict": "a table", "NoneType": "nothing",
}  # fmt: skip
_KINDS = (
    (stat.S_ISFIFO, "a pipe, and is read more than once; write it to a file first"),
    (stat.S_ISDIR, "a folder; name a file in it"), (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"), (stat.S_ISSOCK, "a socket, not a file"),
)  # fmt: skip


@contextmanager
def reading(name: object, kind: str) -> Iterator[None]:
    """Turn whatever the block raises into an error of one line that names what is read: the border of a reader.

    Readers expect the faults that they know. Files of others hold faults that nobody has thought of, and the user needs
    to know which file it is in each case.

    Args:
        name: path or name of what is read.
        kind: what it is read as, e.g. `trace`.

    >>> with reading("a.json", "report"): raise RecursionError("maximum recursion depth exceeded")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: a.json: cannot be read as report: it is nested too deeply
    """
    try:
        yield
    except (NearpeakError, BrokenPipeError):
        raise
    except Exception as error:
        raise SpecError(f"{name}: cannot be read{_as(kind, error)}: {_reason(error)}") from error


@contextmanager
def naming(name: object) -> Iterator[None]:
    """Put the name of what is read before messages of the block that do not hold it.

    >>> with naming("a.onnx"): raise SpecError("input 'x': dimension 2 is open")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: a.onnx: input 'x': dimension 2 is open
    """
    try:
        yield
    except MissingExtraError:
        raise
    except NearpeakError as error:
        if str(name) in str(error):
            raise
        raise type(error)(f"{name}: {error}") from error


def border(kind: str) -> Callable[[Callable[_Parameters, _Value]], Callable[_Parameters, _Value]]:
    """Return a decorator of readers whose first argument is or names what they read: `reading` around their whole call.

    >>> @border("report")
    ... def read(path): return {}["rows"]
    >>> read("a.json")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: a.json: cannot be read as report: it lacks 'rows'
    """

    def decorated(reader: Callable[_Parameters, _Value]) -> Callable[_Parameters, _Value]:
        @functools.wraps(reader)
        def guarded(*words: _Parameters.args, **options: _Parameters.kwargs) -> _Value:
            with reading(words[0], kind):
                return reader(*words, **options)

        return guarded

    return decorated


def _as(kind: str, error: Exception) -> str:
    return "" if isinstance(error, OSError) and error.strerror else f" as {kind}"


def _reason(error: Exception) -> str:
    """Return what an exception says, in terms of the file."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than this process may take"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text at byte {error.start}"
    text = " ".join(str(error).split())[:200]
    known = _misfit(error, text)
    if known:
        return known
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}{': ' if text else ''}{text}"


def _misfit(error: Exception, text: str) -> str:
    """Return what an exception says of a value that is absent or of another kind; empty for all others."""
    if isinstance(error, KeyError):
        return f"it lacks {shown(error.args[0]) if error.args else 'a key'}"
    if text.startswith("string indices must be integers"):
        return "it holds a text where a table is right"
    if "Exceeds the limit" in text:  # of digits: Python's own words tell how to lift it
        return "it holds a number of more than 4,300 digits"
    if match := _WRONG_KIND.fullmatch(text):
        otherwise = "a table" if text.endswith("subscriptable") else "a list"
        wanted = _WANTED.get(match["method"] or "", otherwise)
        return f"it holds {_HELD.get(match['kind'], match['kind'])} where {wanted} is right"
    return ""


def check_file(path: Path | str, name: object = None, *, is_read_once: bool = False) -> None:
    """Refuse what cannot be read like a file: a folder, a device, a socket, a pipe.

    Args:
        name: how messages call it; its path where none is given.
        is_read_once: whether it is read from start to end and no more, as a pipe can be.

    >>> check_file(os.curdir)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: .: is a folder; name a file in it
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise SpecError(f"{name or path}: not found") from None
    except (OSError, ValueError) as error:  # a zero byte in a name is a ValueError
        raise SpecError(f"{name or path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    for is_kind, what in _KINDS[is_read_once:]:
        if is_kind(mode):
            raise SpecError(f"{name or path}: is {what}")


def bytes_of_file(path: Path | str, name: object = None, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return what a file or a pipe holds.

    Raises:
        SpecError: it is not there, is no file, is longer than `most_bytes`, or is a pipe that gives nothing for 10 s.
    """
    name = name or path
    check_file(path, name, is_read_once=True)
    with reading(name, "file"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode) and state.st_size > most_bytes:
                raise _too_long(name, most_bytes)
            data = bytearray()
            while len(data) <= most_bytes and (part := _part(descriptor, name, stat.S_ISFIFO(state.st_mode))):
                data += part
        finally:
            os.close(descriptor)
    if len(data) > most_bytes:
        raise _too_long(name, most_bytes)
    return bytes(data)


def _part(descriptor: int, name: object, is_pipe: bool) -> bytes:
    """Return the next bytes, empty at the end."""
    if is_pipe:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(PATIENCE_S * 1000):
            raise SpecError(f"{name}: is a pipe into which nothing was written for {PATIENCE_S:g} s; name a file")
    return os.read(descriptor, 1 << 20)


def _too_long(name: object, most_bytes: int) -> SpecError:
    return SpecError(f"{name}: is longer than {show(most_bytes, 'B')}, the limit of what is read at once")


def text_of_file(path: Path | str, name: object = None, *, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with a byte-order mark.

    Args:
        errors: what becomes of bytes that are not UTF-8, as `bytes.decode` names it.

    Raises:
        SpecError: as for `bytes_of_file`, or it is not UTF-8.
    """
    data = in_utf8(bytes_of_file(path, name))
    with reading(name or path, "text"):
        text = data.decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def in_utf8(data: bytes) -> bytes:
    """Return the bytes of a text in UTF-8 without a byte-order mark.

    A text in UTF-16 is told by its mark: PowerShell's `>` writes what programs print so.

    >>> in_utf8("é".encode("utf-16")) == in_utf8("é".encode("utf-8-sig")) == "é".encode()
    True
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def check_line_count(text: str, name: object) -> None:
    r"""Refuse a text of more lines than are read at once.

    >>> check_line_count("0\n" * 1_000_001, "a.csv")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: a.csv: has 1,000,001 lines, over the limit of 1,000,000; cut it into parts
    """
    if (count := text.count("\n")) > MOST_LINES:
        raise SpecError(f"{name}: has {count:,} lines, over the limit of {MOST_LINES:,}; cut it into parts")


def standard_input(most_bytes: int = MOST_BYTES) -> str:
    """Return the text of standard input.

    Raises:
        SpecError: it is longer than `most_bytes`, or not UTF-8.
    """
    with reading("standard input", "text"):
        text = sys.stdin.read(most_bytes + 1)
    if len(text) > most_bytes:
        raise _too_long("standard input", most_bytes)
    return text


def unpacked(data: bytes, name: object, most_bytes: int = MOST_BYTES) -> bytes:
    """Return bytes, unpacked where they are those of a gzip file.

    Raises:
        SpecError: they are damaged, or become more than `most_bytes`.

    >>> import gzip
    >>> unpacked(gzip.compress(b"a") + gzip.compress(b"b"), "x.gz")
    b'ab'
    """
    parts, total = [], 0
    while data[:2] == b"\x1f\x8b":
        unpack = zlib.decompressobj(31)
        try:
            parts.append(unpack.decompress(data, most_bytes - total + 1))
        except zlib.error as error:
            raise SpecError(f"{name}: is a damaged gzip file: {error}") from None
        total += len(parts[-1])
        if total > most_bytes:
            raise SpecError(f"{name}: unpacks to more than {show(most_bytes, 'B')}, the limit of a packed file")
        if not unpack.eof:
            raise SpecError(f"{name}: is a damaged gzip file: it ends early")
        data = unpack.unused_data.lstrip(b"\0")
    return b"".join(parts) if parts else data


def check_ratio(packed_bytes: int, unpacked_bytes: int, name: object) -> None:
    """Refuse a packed file that becomes so much more that it can only be meant to fill the memory.

    >>> check_ratio(1000, 1_000_000_000, "trace.json.gz")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: trace.json.gz: unpacks to more than 300 times its size; unpack it first, if that is meant
    """
    if unpacked_bytes > max(FREE_BYTES, MOST_RATIO * packed_bytes):
        raise SpecError(f"{name}: unpacks to more than {MOST_RATIO} times its size; unpack it first, if that is meant")


def json_value(text: str | bytes, most_memory_bytes: int = MOST_MEMORY_BYTES, **hooks: Any) -> Any:
    """Return the value of a JSON text, as `json.loads` does; a text over a limit is a ValueError like any other.

    Raises:
        ValueError: it is not JSON, is nested too deeply, has a number of too many digits, or holds so much that it
            would take more than `most_memory_bytes`.

    >>> json_value("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    >>> json_value("[" + "[]," * 10_000_000 + "[]]")
    Traceback (most recent call last):
    ValueError: its values take about 1.86 GB of memory, over the limit of 805.3 MB
    """
    count = text.count
    marks = {mark: count(mark if isinstance(text, str) else mark.encode()) for mark in _MARK_BYTES}  # type: ignore[arg-type]
    size = 2 * len(text) + sum(_MARK_BYTES[mark] * number for mark, number in marks.items())
    if size > most_memory_bytes:
        raise ValueError(
            f"its values take about {show(size, 'B')} of memory, over the limit of {show(most_memory_bytes, 'B')}"
        )
    with _plain_faults():
        return json.loads(text, **hooks)


@contextmanager
def _plain_faults() -> Iterator[None]:
    """Put what Python's parsers say of depth and digits into terms of the text: they advise the programmer."""
    try:
        yield
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):
            raise ValueError(f"a number has more than {sys.get_int_max_str_digits()} digits") from None
        raise


def toml_of_file(path: Path | str, name: object = None) -> dict[str, Any]:
    """Return the table of a TOML file.

    Raises:
        SpecError: as for `text_of_file`, or it is not TOML, or over a limit of it.
    """
    text = text_of_file(path, name)
    try:
        return toml_table(text)
    except ValueError as error:
        raise SpecError(f"{name or path}: not TOML: {_reason(error)}") from None


def toml_table(text: str) -> dict[str, Any]:
    """Return the table of a TOML text; a text over a limit is a ValueError like any other.

    >>> toml_table("x = " + "[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    >>> toml_table("a." * 100 + "a = 1")
    Traceback (most recent call last):
    ValueError: a key has more than 64 parts: 'a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a… (130 characters)
    >>> toml_table("a = " + "9" * 5000)
    Traceback (most recent call last):
    ValueError: a number has more than 4300 digits
    """
    if len(text) > MOST_TOML_BYTES:
        raise ValueError(f"it is longer than {show(MOST_TOML_BYTES, 'B')}, the limit of TOML")
    if key := _KEY.search(text):
        raise ValueError(f"a key has more than {MOST_KEY_PARTS} parts: {shown(key.group())}")
    with _plain_faults():
        return tomllib.loads(text)
