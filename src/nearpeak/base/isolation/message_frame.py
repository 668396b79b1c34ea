"""Messages between processes: the length of a JSON text, then the text; nothing is unpickled, and each has a limit."""

import json
import math
import os
import select
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any

_HEADER = struct.Struct(">Q")
_MOST_BYTES = 64 << 20
"""Longest message of a connection: arguments of a call; the path of modules; how a child ended."""
NONCE_BYTES = 16


def send(connection: socket.socket, value: object, descriptors: Sequence[int] = ()) -> None:
    """Write one message; open files travel with its first byte."""
    data = json.dumps(value).encode()
    header = _HEADER.pack(len(data))
    if descriptors:
        socket.send_fds(connection, [header[:1]], list(descriptors))
        header = header[1:]
    connection.sendall(header + data)


def receive(connection: socket.socket, descriptor_count: int = 0) -> tuple[Any, list[int]]:
    """Return the next message and the open files that came with it.

    Raises:
        EOFError: the other end is closed, or has sent something else than a message.
        TimeoutError: it did not come within the time limit of the connection.
    """
    start, descriptors, _, _ = socket.recv_fds(connection, 1, descriptor_count)
    (length,) = _HEADER.unpack(start + _exactly(connection, _HEADER.size - len(start)))
    if length > _MOST_BYTES:
        raise EOFError
    return json.loads(_exactly(connection, length)), descriptors


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts, missing = [], size
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def readable(descriptors: Iterable[int], wait_s: float) -> set[int]:
    """Return which of some open files have something to read, or have been closed at their other end."""
    poll = select.poll()  # unlike select(2), it takes numbers of files above 1,023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(wait_s * 1000))}


def write_answer(descriptor: int, nonce: bytes, verdict: str, text: str) -> None:
    """Write a child's answer to its pipe: the nonce of the call, the length, the verdict, a line feed, the text."""
    body = f"{verdict}\n{text}".encode()
    data = memoryview(nonce + _HEADER.pack(len(body)) + body)
    while data:
        data = data[os.write(descriptor, data) :]


class Answer:
    r"""What has come of a child's answer, checked as it comes.

    >>> answer = Answer(b"n" * NONCE_BYTES, 100)
    >>> answer.add(b"n" * NONCE_BYTES + _HEADER.pack(8) + b"result" + b"\n"); answer.is_whole
    False
    >>> answer.add(b"4"); answer.is_whole, answer.value()
    (True, ('result', 4))
    """

    def __init__(self, nonce: bytes, most_bytes: int) -> None:
        """Start empty.

        Args:
            nonce: what the answer must begin with.
            most_bytes: longest answer.
        """
        self._nonce, self._most_bytes, self._data, self.fault = nonce, most_bytes, bytearray(), ""

    def add(self, data: bytes) -> None:
        """Append what came; `fault` says what is wrong with it, if anything."""
        self._data += data
        if not self._nonce.startswith(bytes(self._data[: len(self._nonce)])):
            self.fault = "it wrote something else than an answer to the pipe of answers"
        elif self._length > self._most_bytes or len(self._data) > self._most_bytes + 64:
            self.fault = f"its answer is longer than {self._most_bytes} bytes, the limit of an answer"

    @property
    def _length(self) -> int:
        """Bytes of the answer, as far as known."""
        head = self._data[NONCE_BYTES : NONCE_BYTES + _HEADER.size]
        return int(_HEADER.unpack(head)[0]) if len(head) == _HEADER.size else 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        start = NONCE_BYTES + _HEADER.size
        return len(self._data) >= start and len(self._data) >= start + self._length

    def value(self) -> tuple[str, Any]:
        """Return verdict and value; of an answer that is none, a verdict `raised` that says so."""
        start = NONCE_BYTES + _HEADER.size
        line_end = self._data.find(b"\n", start, start + 16)
        try:
            kind = self._data[start:line_end].decode()
            value = json.loads(self._data[line_end + 1 : start + self._length])
        except (ValueError, RecursionError, MemoryError) as error:
            return "raised", ["AnswerError", f"its answer is not JSON: {error}"]
        names = isinstance(value, list) and len(value) == 2 and all(isinstance(word, str) for word in value)
        if kind == "result" or (kind in ("error", "raised") and names):
            return kind, value
        return "raised", ["AnswerError", "its answer is of no known kind"]
