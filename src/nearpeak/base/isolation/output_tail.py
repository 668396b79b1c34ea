"""The last lines of a program's output."""


class Tail:
    """Keeps the last bytes of what it is given.

    >>> tail = Tail(4)
    >>> tail.add(b"begin")
    >>> tail.add(b" end")
    >>> tail.text()
    ' end'
    """

    def __init__(self, most_bytes: int) -> None:
        """Begin with nothing."""
        self._most_bytes, self._kept = most_bytes, b""

    def add(self, data: bytes) -> None:
        """Take what was printed next."""
        self._kept = (self._kept + data)[-self._most_bytes :]

    def text(self) -> str:
        """Return what is kept; bytes that are no UTF-8, such as half a character at the cut, are shown as such."""
        return self._kept.decode("utf-8", "replace")
