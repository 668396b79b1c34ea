"""Text format of protocol buffers, as files named config.pbtxt have it: read into values, written back."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nearpeak.errors import SpecError

Value = "str | int | float | bool | Word | Message"
_TOKEN = re.compile(
    r"""(?P<space>(?:\s++|\#[^\n]*+)++)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[:{}\[\],;<>])"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
MOST_DEPTH = 50
"""Messages inside messages that are read."""
MOST_DIGITS = 32
"""Characters of a number that is read."""
MOST_CHARACTERS = 1 << 20
"""Length of a text that is read; configurations have some thousand characters."""


class Word(str):
    """A name of an enumeration, which is written without quotes."""

    __slots__ = ()


class Field(NamedTuple):
    """One field of a message."""

    name: str
    """Name."""
    value: object
    """Text, number, truth value, Word or Message."""


class Message(tuple[Field, ...]):
    """Fields in the order of the file; repeated ones stand once for each value."""

    __slots__ = ()

    def all(self, name: str) -> list[object]:
        """Return the values of a field."""
        return [field.value for field in self if field.name == name]

    def messages(self, name: str) -> list["Message"]:
        """Return the values of a field that are messages."""
        return [value for value in self.all(name) if isinstance(value, Message)]


def parse_proto(text: str, name: str) -> Message:
    """Return the message of a text.

    Args:
        name: of the file, for messages.

    Raises:
        SpecError: with the line of the first thing that is no field.

    >>> message = parse_proto('max_batch_size: 8  input [ { name: "x" dims: [ 3, -1 ] } ]', "a.pbtxt")
    >>> message.messages("input")[0].all("dims")
    [3, -1]
    """
    if len(text) > MOST_CHARACTERS:
        raise SpecError(f"{name}: has {len(text):,} characters; a configuration has at most {MOST_CHARACTERS:,}")
    tokens = _Tokens(text, name)
    message = _message(tokens, "", 0)
    if tokens.kind:
        raise tokens.error("a field")
    return message


class _Tokens:
    """Tokens of a text, one at a time."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.place, self.kind, self.value = text, name, 0, "", ""
        self.next()

    def next(self) -> str:
        """Step to the next token; return the one before."""
        before, self.kind, self.value = self.value, "", ""
        while self.place < len(self.text) and not self.kind:
            match = _TOKEN.match(self.text, self.place)
            if match is None:
                self.value = self.text[self.place : self.place + 20].split("\n")[0]
                raise self.error("a name, a number, a text in quotes, or one of : { } [ ] , ;")
            self.place = match.end()
            if match.lastgroup != "space":
                self.kind, self.value = str(match.lastgroup), match[0]
        return before

    def take(self, value: str) -> bool:
        """Step over a mark, if it is there."""
        if self.kind == "mark" and self.value == value:
            self.next()
            return True
        return False

    def error(self, wanted: str) -> SpecError:
        line = self.text.count("\n", 0, self.place) + 1
        return SpecError(f"{self.name}: line {line}: {self.value[:40]!r} where {wanted} is expected")


def _message(tokens: _Tokens, end: str, depth: int) -> Message:
    fields: list[Field] = []
    if depth > MOST_DEPTH:
        raise SpecError(f"{tokens.name}: messages lie more than {MOST_DEPTH} deep")
    while tokens.kind and not (tokens.kind == "mark" and tokens.value == end):
        if tokens.kind != "word":
            raise tokens.error("the name of a field")
        name = tokens.next()
        has_colon = tokens.take(":")
        if tokens.take("["):
            while not tokens.take("]"):
                fields.append(Field(name, _value(tokens, depth, has_colon=True)))
                if not tokens.take(",") and tokens.value != "]":
                    raise tokens.error("',' or ']'")
        else:
            fields.append(Field(name, _value(tokens, depth, has_colon=has_colon)))
        if not tokens.take(","):
            tokens.take(";")
    if end and not tokens.take(end):
        raise tokens.error(f"{end!r}")
    return Message(fields)


def _value(tokens: _Tokens, depth: int, *, has_colon: bool) -> object:
    for begin, end in (("{", "}"), ("<", ">")):
        if tokens.take(begin):
            return _message(tokens, end, depth + 1)
    if not has_colon:
        raise tokens.error("':' or '{'")
    kind = tokens.kind
    if kind not in ("text", "number", "word"):
        raise tokens.error("a value")
    if kind == "number" and len(tokens.value) > MOST_DIGITS:
        raise tokens.error(f"a number of at most {MOST_DIGITS} characters")
    text = tokens.next()
    if kind == "number":
        return float(text) if re.search(r"[.eE]", text) else int(text)
    if kind == "word":
        return {"true": True, "false": False}.get(text, Word(text))
    parts = [_unquoted(text)]
    while tokens.kind == "text":
        parts.append(_unquoted(tokens.next()))
    return "".join(parts)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text[1:-1])


def line_of(text: str, field: str) -> int:
    r"""Return the first line that names a field, comments left out; 0 where none does.

    >>> line_of('name: "count" # count\ncount: 3', "count")
    2
    """
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "word" and match[0] == field:
            return text.count("\n", 0, match.start()) + 1
    return 0


def proto_text(message: Sequence[Field], indent: str = "") -> str:
    """Return a message as text; numbers and words that follow each other under one name become a list.

    >>> print(proto_text(parse_proto('a: 1 a: 2 b { c: "x" }', "")))
    a: [ 1, 2 ]
    b {
      c: "x"
    }
    """
    lines = []
    for name, values in _runs(message):
        if all(not isinstance(value, Message) for value in values):
            words = ", ".join(map(_shown, values))
            lines.append(f"{indent}{name}: [ {words} ]" if len(values) > 1 else f"{indent}{name}: {words}")
            continue
        for value in values:
            assert isinstance(value, Message)
            inner = proto_text(value, indent + "  ")
            lines.append(f"{indent}{name} {{\n{inner}\n{indent}}}" if inner else f"{indent}{name} {{ }}")
    return "\n".join(lines)


def _runs(message: Sequence[Field]) -> Iterator[tuple[str, list[object]]]:
    """Yield neighbouring fields of one name and kind together."""
    place = 0
    while place < len(message):
        name, first = message[place]
        stop = place
        while stop < len(message) and message[stop].name == name:
            if isinstance(message[stop].value, Message) != isinstance(first, Message):
                break
            stop += 1
        yield name, [field.value for field in message[place:stop]]
        place = stop


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not isinstance(value, Word):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped.replace(chr(13), chr(92) + "r")}"'
    return str(value)
