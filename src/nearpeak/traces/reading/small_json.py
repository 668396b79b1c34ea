"""Tokens of a small, well-formed JSON event file by the standard library, so that nothing is compiled for it."""

import json
import re
import struct

from nearpeak.traces.reading.json_scan import NESTED, ODD, REAL, SPAN, TEXT, TIME, WHOLE

MOST_BYTES = 4 << 20
"""Size up to which this takes less time than compiling the scanner for files of any size and state."""
_MOST_KEY_CHARACTERS = 200
_MOST_DIGITS = 18
_TEXT = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_BLANK = r"[ \t\r\n]*"
_KEY = re.compile(f"{_BLANK}{_TEXT}{_BLANK}:{_BLANK}", re.DOTALL)
_VALUE = re.compile(
    rf"{_TEXT}|(-?(\d+)(?:\.(\d+))?(?![\d.eE]))|([\[{{])|(null(?![A-Za-z+]))|([A-Za-z+]+|-?[\d.]+[eE][-+]?\d+)",
    re.DOTALL,
)
_SEPARATOR = re.compile(rf"{_BLANK}([,}}\]]|\Z)")
_OPENING = re.compile(rf"{_BLANK}(.|\Z)", re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)


class NotPlainError(ValueError):
    """A file that is damaged or unusual, which the scanner reads as far as it can."""


class SmallFile:
    """The tokens of a file: one entry per field of an event in each list.

    `texts` numbers the texts, each byte a character; `metadata` holds the values beside the list of events as text.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.event_count = 0
        self.event, self.key, self.kind, self.value = list[int](), list[int](), list[int](), list[int]()
        self.texts, self.metadata = dict[str, int](), dict[str, str]()


def small_file(data: bytes) -> SmallFile:
    """Return the tokens of a file that is an object with `traceEvents`, or a list of events.

    The tokens are those that `json_tokens.scan` gives.

    Raises:
        NotPlainError: the file is damaged, or holds what the scanner has to judge.

    >>> file = small_file(b'[{"name": "a", "ts": 1.5, "args": {"n": [1, 2]}}]')
    >>> list(file.texts), file.value, file.kind
    (['name', 'a', 'ts', 'args', 'n', '[1, 2]'], [1, 1500, 5], [1, 6, 12])
    """
    reader = _Reader(data.removeprefix(b"\xef\xbb\xbf").decode("latin-1"))
    try:
        reader.read_file()
    except (RecursionError, json.JSONDecodeError):
        raise NotPlainError from None
    return reader.file


class _Reader:
    """Reads one text from its start to its end."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.file = text, 0, SmallFile()

    def read_file(self) -> None:
        """Read the whole text."""
        if self.opening() == "[":
            self.read_events()
        elif self.text[self.at - 1 : self.at] == "{":
            self.read_object()
        else:
            raise NotPlainError

    def opening(self) -> str:
        """Go past the next character that is not blank and return it; empty at the end."""
        match = _OPENING.match(self.text, self.at)
        assert match
        self.at = match.end()
        return match[1]

    def separator(self) -> str:
        """Go past the comma or bracket that has to come now and return it."""
        match = _SEPARATOR.match(self.text, self.at)
        if match is None or not match[1]:
            raise NotPlainError
        self.at = match.end()
        return match[1]

    def read_key(self) -> str:
        """Go past a key and its colon and return it."""
        match = _KEY.match(self.text, self.at)
        if match is None or len(match[1]) > _MOST_KEY_CHARACTERS:
            raise NotPlainError
        self.at = match.end()
        return match[1]

    def span(self) -> str:
        """Go past the value that begins here and return its text."""
        start = self.at
        _, self.at = _DECODER.raw_decode(self.text, start)
        return self.text[start : self.at]

    def read_object(self) -> None:
        """Read the outermost object: the events, and what stands beside them."""
        if self.is_closed():
            return
        while True:
            key = self.read_key()
            if key == "traceEvents" and self.text[self.at : self.at + 1] == "[":
                self.at += 1
                self.read_events()
            else:
                self.file.metadata[key] = self.span()
            if self.separator() != ",":
                return

    def is_closed(self) -> bool:
        """Return whether a list or object that was just opened is empty; its end is passed then."""
        start = self.at
        if self.opening() in ("}", "]"):
            return True
        self.at = start
        return False

    def read_events(self) -> None:
        """Read events until their list closes."""
        if self.is_closed():
            return
        while True:
            if self.opening() != "{":
                raise NotPlainError
            self.read_fields(0)
            self.file.event_count += 1
            if self.separator() != ",":
                return

    def read_fields(self, nested: int) -> None:
        """Read the fields of an event, or of its `args` as `nested` ones, until it closes."""
        if self.is_closed():
            return
        file, texts, text = self.file, self.file.texts, self.text
        while True:
            name = self.read_key()
            key = texts.setdefault(name, len(texts))
            match = _VALUE.match(text, self.at)
            if match is None:
                raise NotPlainError
            if match[5] == "{" and not nested and name == "args":
                self.at = match.end()
                self.read_fields(NESTED)
            elif match[6] is None:
                kind, value = self.token(match, is_time=not nested and name in ("ts", "dur"))
                file.event.append(file.event_count)
                file.key.append(key)
                file.kind.append(kind + nested)
                file.value.append(value)
            else:  # null: the file says nothing
                self.at = match.end()
            if self.separator() != ",":
                return

    def token(self, match: re.Match[str], *, is_time: bool) -> tuple[int, int]:
        """Go past a value and return its kind and what stands for it."""
        texts = self.file.texts
        self.at = match.end()
        if match[1] is not None:
            return TEXT, texts.setdefault(match[1], len(texts))
        if match[5] is not None:
            self.at = match.start()
            span = self.span()
            return SPAN, texts.setdefault(span, len(texts))
        if match[2] is not None and len(match[3]) + len(match[4] or "") <= _MOST_DIGITS:
            whole = int(match[3] + (match[4] or "")) * (-1 if match[2][0] == "-" else 1)
            decimals = len(match[4] or "")
            if is_time and (decimals >= 3 or abs(whole) <= 9 * 10 ** (15 + decimals)):
                return TIME, _thousandths(whole, decimals)
            if not is_time and decimals == 0:
                return WHOLE, whole
            if not is_time and abs(whole) < 2**53:
                return REAL, int.from_bytes(struct.pack("<d", whole / 10.0**decimals), "little", signed=True)
        return ODD, texts.setdefault(match[0], len(texts))


def _thousandths(value: int, decimals: int) -> int:
    """Return value / 10**decimals in thousandths, a half rounded away from 0."""
    if decimals <= 3:
        return value * int(10 ** (3 - decimals))
    scale = int(10 ** (decimals - 3))
    rounded = (abs(value) + scale // 2) // scale
    return rounded if value >= 0 else -rounded
