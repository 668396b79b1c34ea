"""Compiled byte scanning of JSON: interning, exact decimal times, tolerance of unescaped quotes."""

from typing import Any

import numpy as np

from nearpeak.base.compilation import ALWAYS_COMPILED, compiled_exactly

DONE, MORE, FULL = 0, 1, 2
"""Why a pass ended: the list closed, the bytes ran out inside an event, the tables are full."""
TEXT, WHOLE, REAL, SPAN, ODD, TIME = 1, 2, 3, 4, 5, 6
"""Kinds of tokens: text, whole number, float, list or object as text, anything else as text, time in thousandths."""
NESTED = 8
"""Added to the kind of tokens that stand in `args`."""
EVENTS, TOKENS, TEXTS, ARENA, BROKEN, QUOTES, FIRST_BROKEN = 0, 1, 2, 3, 4, 5, 6
"""Places in the array of counts; the last is where the first broken event began."""
_BAD, _SHORT, _NO_ROOM = -1, -2, -3
_MOST_KEY = 256
_QUOTE, _ESCAPE, _COMMA, _COLON, _OPEN, _CLOSE, _LIST, _END = 34, 92, 44, 58, 123, 125, 91, 93
_PRIME, _BASIS = np.uint64(1099511628211), np.uint64(14695981039346656037)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _blank(buf: Any, i: Any, end: Any) -> Any:
    """Return the first place from `i` that is no white space."""
    while i < end and (buf[i] == 32 or buf[i] == 10 or buf[i] == 13 or buf[i] == 9):
        i += 1
    return i


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _key_follows(buf: Any, i: Any, end: Any) -> Any:
    """Return 1 where a key and its colon stand at `i`, 0 where not, -1 where the bytes end before that is known."""
    if i >= end:
        return -1
    if buf[i] != _QUOTE:
        return 0
    limit = min(end, i + _MOST_KEY)
    i += 1
    while i < limit and buf[i] != _QUOTE and buf[i] != 10:
        i += 2 if buf[i] == _ESCAPE else 1
    if i >= limit:
        return -1 if limit == end else 0
    i = _blank(buf, i + 1, end)
    return -1 if i >= end else int(buf[i] == _COLON)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def guessed(buf: Any, i: Any, end: Any, guess: Any, starts: Any, arena: Any) -> Any:
    """Return the end of the key whose quote is at `i` if the key is text `guess` and a colon follows, or 0."""
    if guess < 0:
        return 0
    at = starts[guess]
    stop = i + 1 + starts[guess + 1] - at
    if stop + 1 >= end or buf[i] != _QUOTE or buf[stop] != _QUOTE or buf[stop + 1] != _COLON:
        return 0
    differ = 0
    for k in range(stop - i - 1):
        differ |= arena[at + k] ^ buf[i + 1 + k]
    return stop if differ == 0 else 0


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def is_text(buf: Any, i: Any, end: Any, number: Any, starts: Any, arena: Any) -> Any:
    """Return the position after text `number` if it begins at `i` and bytes follow it, or 0."""
    if number < 0:
        return 0
    at, length = starts[number], starts[number + 1] - starts[number]
    if length == 0 or i + length >= end or buf[i + length - 1] != arena[at + length - 1]:
        return 0
    differ = 0
    for k in range(length):
        differ |= arena[at + k] ^ buf[i + k]
    return i + length if differ == 0 else 0


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _closes(buf: Any, i: Any, end: Any, guess: Any, starts: Any, arena: Any) -> Any:
    """Return 1 where a quote just before `i` ends a value of an object, 0 where it is inside one, -1 if unknown."""
    i = _blank(buf, i, end)
    if i >= end:
        return -1
    if buf[i] == _COMMA:
        i = _blank(buf, i + 1, end)
        if guessed(buf, i, end, guess, starts, arena):
            return 1
        return _key_follows(buf, i, end) if i >= end or buf[i] != _CLOSE else 1
    if buf[i] != _CLOSE:
        return 0
    i = _blank(buf, i + 1, end)
    return -1 if i >= end else int(buf[i] == _COMMA or buf[i] == _CLOSE or buf[i] == _END)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _marked(buf: Any, i: Any, end: Any) -> Any:
    """Return the first place from `i` that holds a quote or an escape."""
    while i < end and buf[i] != _QUOTE and buf[i] != _ESCAPE:
        i += 1
    return i


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def text_end(buf: Any, i: Any, end: Any, final: Any, counts: Any, guess: Any, starts: Any, arena: Any) -> Any:
    """Return the position of the quote that ends the text from `i`; unescaped inner quotes are skipped."""
    inner = 0
    i = _marked(buf, i, end)
    while i < end:
        if buf[i] == _ESCAPE:
            i = _marked(buf, i + 2, end)
            continue
        closing = _closes(buf, i + 1, end, guess, starts, arena)
        if closing == 1 or (closing == -1 and final):
            counts[QUOTES] += inner
            return i
        if closing == -1:
            return _SHORT
        inner = 1
        i = _marked(buf, i + 1, end)
    return _BAD if final else _SHORT


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def span_end(buf: Any, i: Any, end: Any, final: Any) -> Any:
    """Return the place after the list or object that opens at `i`."""
    depth, inside = 0, False
    while i < end:
        c = buf[i]
        if inside:
            if c == _ESCAPE:
                i += 1
            elif c == _QUOTE:
                after = _blank(buf, i + 1, end)
                inside = after < end and not (
                    buf[after] == _COMMA or buf[after] == _END or buf[after] == _CLOSE or buf[after] == _COLON
                )
        elif c == _QUOTE:
            inside = True
        elif c in (_LIST, _OPEN):
            depth += 1
        elif c in (_END, _CLOSE):
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return _BAD if final else _SHORT


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def hash_of(buf: Any, start: Any, stop: Any) -> Any:
    """Return a hash of buf[start:stop] in four independent lanes, so that none waits for a product of another."""
    a, b, c, d = _BASIS, _BASIS, _BASIS, _BASIS
    i = start
    while i + 4 <= stop:
        a = (a ^ np.uint64(buf[i])) * _PRIME
        b = (b ^ np.uint64(buf[i + 1])) * _PRIME
        c = (c ^ np.uint64(buf[i + 2])) * _PRIME
        d = (d ^ np.uint64(buf[i + 3])) * _PRIME
        i += 4
    while i < stop:
        a = (a ^ np.uint64(buf[i])) * _PRIME
        i += 1
    a = (a ^ b) * _PRIME
    a = (a ^ (a >> np.uint64(31)) ^ c) * _PRIME
    return (a ^ (a >> np.uint64(31)) ^ d) * _PRIME


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def intern(buf: Any, start: Any, stop: Any, table: Any, hashes: Any, starts: Any, arena: Any, counts: Any) -> Any:
    """Return the number of the text buf[start:stop], a new one where it was never seen; -3 where there is no room."""
    h = hash_of(buf, start, stop)
    mask = len(table) - 1
    place = np.int64((h ^ (h >> np.uint64(29))) & np.uint64(mask))
    while table[place] >= 0:
        known = table[place]
        if hashes[known] == h and starts[known + 1] - starts[known] == stop - start:
            at, differ = starts[known], 0
            for i in range(stop - start):
                differ |= arena[at + i] ^ buf[start + i]
            if differ == 0:
                return known
        place = (place + 1) & mask
    number, used = counts[TEXTS], counts[ARENA]
    if number + 1 >= len(hashes) or used + stop - start > len(arena):
        return _NO_ROOM
    for i in range(stop - start):
        arena[used + i] = buf[start + i]
    table[place], hashes[number], starts[number + 1] = number, h, used + stop - start
    counts[TEXTS], counts[ARENA] = number + 1, used + stop - start
    return number


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def number_at(buf: Any, i: Any, end: Any) -> Any:
    """Return (end, digits as an integer, digits after the point); decimals are -1 where the number is not plain."""
    negative = buf[i] == 45
    if negative:
        i += 1
    value, digits, decimals, point = np.int64(0), 0, 0, False
    while i < end:
        c = buf[i]
        if 48 <= c <= 57:
            if digits < 18:
                value = value * 10 + (c - 48)
            digits += 1
            decimals += point
        elif c == 46 and not point:
            point = True
        else:
            break
        i += 1
    if digits == 0 or digits > 18 or (i < end and (buf[i] == 101 or buf[i] == 69 or buf[i] == 46)):
        while i < end and buf[i] not in (_COMMA, _CLOSE, _END, 32, 10, 13, 9):
            i += 1
        decimals = -1
    return i, -value if negative else value, decimals


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def thousandths(value: Any, decimals: Any) -> Any:
    """Return value / 10**decimals in thousandths, a half rounded away from 0."""
    while decimals < 3:
        value *= 10
        decimals += 1
    if decimals > 3:
        scale = np.int64(10) ** (decimals - 3)
        half = scale // 2
        value = (value + half) // scale if value >= 0 else -((-value + half) // scale)
    return value


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def refill(table: Any, hashes: Any, used: Any) -> Any:
    """Enter the first `used` texts into an empty table."""
    mask = len(table) - 1
    for number in range(used):
        h = hashes[number]
        place = np.int64((h ^ (h >> np.uint64(29))) & np.uint64(mask))
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = number
