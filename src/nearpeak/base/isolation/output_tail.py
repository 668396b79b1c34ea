"""The last lines of a program's output."""


class Tail:
    """Holds the last bytes of a stream.

    >>> tail = Tail(4)
    >>> tail.add(b"begin")
    >>> tail.add(b" end")
    >>> tail.text()
    ' end'
    """

    def __init__(self, most_bytes: int) -> None:
        """Start empty."""
        self._most_bytes, self._kept = most_bytes, b""

    def add(self, data: bytes) -> None:
        """Append printed bytes."""
        self._kept = (self._kept + data)[-self._most_bytes :]

    def text(self) -> str:
        """Return the held text; bytes that are not UTF-8, such as half a character at the cut, are replaced."""
        return self._kept.decode("utf-8", "replace")
