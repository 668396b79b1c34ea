"""Fields of protocol-buffer messages as bytes: numbers, texts and messages within messages."""


def varint(value: int) -> bytes:
    """Return a whole number as protocol buffers write it.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field_key(field: int, wire: int) -> bytes:
    """Return the key that precedes the value of a field."""
    return varint(field << 3 | wire)


def number_field(field: int, value: int) -> bytes:
    """Return a field that holds a whole number."""
    return field_key(field, 0) + varint(value)


def message_field(field: int, data: bytes) -> bytes:
    """Return a field that holds a message or bytes."""
    return field_key(field, 2) + varint(len(data)) + data


def text_field(field: int, text: str) -> bytes:
    r"""Return a field that holds a text.

    >>> text_field(2, "a")
    b'\x12\x01a'
    """
    return message_field(field, text.encode("utf-8", "replace"))
