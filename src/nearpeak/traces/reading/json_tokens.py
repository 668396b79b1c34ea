"""Compiled tokeniser of JSON event lists, event by event until the bytes or the tables end."""

from typing import Any

import numpy as np

from nearpeak.base.compilation import ALWAYS_COMPILED, compiled_exactly
from nearpeak.traces.reading.json_scan import (  # fmt: skip
    _BAD,
    _NO_ROOM,
    _SHORT,
    BROKEN,
    DONE,
    EVENTS,
    FIRST_BROKEN,
    FULL,
    MORE,
    NESTED,
    ODD,
    QUOTES,
    REAL,
    SPAN,
    TEXT,
    TIME,
    TOKENS,
    WHOLE,
    _blank,
    _closes,
    _key_follows,
    guessed,
    intern,
    is_text,
    number_at,
    span_end,
    text_end,
    thousandths,
)

_QUOTE, _COMMA, _OPEN, _CLOSE, _LIST, _END = 34, 44, 123, 125, 91, 93
_TEN = 10.0 ** np.arange(23)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _emit(tokens: Any, key: Any, kind: Any, value: Any, counts: Any) -> Any:
    """Keep one token of the current event."""
    at = counts[TOKENS]
    tokens[0][at], tokens[1][at], tokens[2][at], tokens[3][at] = counts[EVENTS], key, kind, value
    counts[TOKENS] = at + 1


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _is(buf: Any, start: Any, stop: Any, word: Any) -> Any:
    """Say whether buf[start:stop] is `word`."""
    if stop - start != len(word):
        return False
    same = True
    for i in range(len(word)):
        same &= buf[start + i] == word[i]
    return same


_TS, _DUR, _ARGS = np.frombuffer(b"ts", np.uint8), np.frombuffer(b"dur", np.uint8), np.frombuffer(b"args", np.uint8)
_EVENTS = np.frombuffer(b"traceEvents", np.uint8)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _number(
    buf: Any, i: Any, end: Any, final: Any, timed: Any, key: Any, nested: Any, tables: Any, tokens: Any, counts: Any
) -> Any:
    """Keep the number at `i`; return the place after it."""
    after, value, decimals = number_at(buf, i, end)
    if after >= end and not final:
        return _SHORT
    if decimals < 0 or decimals > 18 or (timed and decimals < 3 and abs(value) > 9 * 10 ** (15 + decimals)):
        return _worded(buf, i, after, ODD, key, nested, tables, tokens, counts)
    if timed:
        _emit(tokens, key, TIME + nested, thousandths(value, decimals), counts)
    elif decimals == 0:
        _emit(tokens, key, WHOLE + nested, value, counts)
    elif -(2**53) < value < 2**53:
        tokens[4][counts[TOKENS]] = value / _TEN[decimals]
        _emit(tokens, key, REAL + nested, tokens[3][counts[TOKENS]], counts)
    else:
        return _worded(buf, i, after, ODD, key, nested, tables, tokens, counts)
    return after


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _worded(
    buf: Any, start: Any, stop: Any, kind: Any, key: Any, nested: Any, tables: Any, tokens: Any, counts: Any
) -> Any:
    """Keep buf[start:stop] as a text; return the place after it."""
    number = intern(buf, start, stop, tables[0], tables[1], tables[2], tables[3], counts)
    if number < 0:
        return _NO_ROOM
    tables[5][key & (len(tables[5]) - 1)] = number
    _emit(tokens, key, kind + nested, number, counts)
    return stop


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _text(buf: Any, i: Any, end: Any, final: Any, key: Any, nested: Any, tables: Any, tokens: Any, counts: Any) -> Any:
    """Keep the text whose quote stands at `i`, most often the same as the field had last; return the place after it."""
    slot = key & (len(tables[5]) - 1)
    last, following = tables[5][slot], tables[4][slot]
    stop = is_text(buf, i + 1, end, last, tables[2], tables[3])
    if stop and buf[stop] == _QUOTE and _closes(buf, stop + 1, end, following, tables[2], tables[3]) == 1:
        _emit(tokens, key, TEXT + nested, last, counts)
        return stop + 1
    stop = text_end(buf, i + 1, end, final, counts, following, tables[2], tables[3])
    if stop < 0:
        return stop
    done = _worded(buf, i + 1, stop, TEXT, key, nested, tables, tokens, counts)
    return done + 1 if done >= 0 else done


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _span(buf: Any, i: Any, end: Any, final: Any, key: Any, nested: Any, tables: Any, tokens: Any, counts: Any) -> Any:
    """Keep the list or object that opens at `i`, most often the same as the field had last."""
    last = tables[5][key & (len(tables[5]) - 1)]
    stop = is_text(buf, i, end, last, tables[2], tables[3])
    if stop:
        _emit(tokens, key, SPAN + nested, last, counts)
        return stop
    stop = span_end(buf, i, end, final)
    if stop < 0:
        return stop
    return _worded(buf, i, stop, SPAN, key, nested, tables, tokens, counts)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _value(
    buf: Any, i: Any, end: Any, final: Any, timed: Any, key: Any, nested: Any, tables: Any, tokens: Any, counts: Any
) -> Any:
    """Keep the value at `i`; return the place after it, or why there is none."""
    c = buf[i]
    if c == _QUOTE:
        return _text(buf, i, end, final, key, nested, tables, tokens, counts)
    if c == 45 or 48 <= c <= 57:
        return _number(buf, i, end, final, timed, key, nested, tables, tokens, counts)
    if c in (_LIST, _OPEN):
        return _span(buf, i, end, final, key, nested, tables, tokens, counts)
    stop = i
    while stop < end and (65 <= buf[stop] <= 90 or 97 <= buf[stop] <= 122 or buf[stop] == 43):
        stop += 1
    if stop >= end and not final:
        return _SHORT
    if stop == i:
        return _BAD
    if c == 110 and stop - i == 4:  # null: the file says nothing
        return stop
    return _worded(buf, i, stop, ODD, key, nested, tables, tokens, counts)


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _key(buf: Any, i: Any, end: Any, final: Any) -> Any:
    """Return (end of the key whose quote is at `i`, position of its value); negative where there is none."""
    if i >= end:
        return (_BAD if final else _SHORT), i
    if buf[i] != _QUOTE:
        return _BAD, i
    follows = _key_follows(buf, i, end)
    if follows != 1:
        return (_SHORT if follows == -1 and not final else _BAD), i
    stop = i + 1
    while buf[stop] != _QUOTE:
        stop += 2 if buf[stop] == 92 else 1
    place = _blank(buf, _blank(buf, stop + 1, end) + 1, end)
    if place >= end:
        return (_BAD if final else _SHORT), i
    return stop, place


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def event_end(buf: Any, i: Any, end: Any, final: Any, tables: Any, tokens: Any, counts: Any) -> Any:
    """Keep all fields of the event that opens at `i`, those of its `args` too; return the place after it."""
    nested, before = 0, 0
    i = _blank(buf, i + 1, end)
    while i < end:
        if buf[i] == _COMMA:
            i = _blank(buf, i + 1, end)
        elif buf[i] == _CLOSE:
            if not nested:
                return i + 1
            nested = 0
            i = _blank(buf, i + 1, end)
        else:
            stop = guessed(buf, i, end, tables[4][before], tables[2], tables[3])
            if stop:
                key, place = tables[4][before], _blank(buf, stop + 2, end)
                if place >= end:
                    return _BAD if final else _SHORT
            else:
                stop, place = _key(buf, i, end, final)
                if stop < 0:
                    return stop
                key = intern(buf, i + 1, stop, tables[0], tables[1], tables[2], tables[3], counts)
                if key < 0:
                    return _NO_ROOM
                tables[4][before] = key
            before = key & (len(tables[4]) - 1)
            if not nested and buf[place] == _OPEN and _is(buf, i + 1, stop, _ARGS):
                nested = NESTED
                i = _blank(buf, place + 1, end)
                continue
            if counts[TOKENS] + 1 >= len(tokens[0]):
                return _NO_ROOM
            timed = not nested and (_is(buf, i + 1, stop, _TS) or _is(buf, i + 1, stop, _DUR))
            i = _value(buf, place, end, final, timed, key, nested, tables, tokens, counts)
            if i < 0:
                return i
            i = _blank(buf, i, end)
            if i < end and buf[i] != _COMMA and buf[i] != _CLOSE:
                return _BAD
    return _BAD if final else _SHORT


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def _next_event(buf: Any, i: Any, end: Any) -> Any:
    """Return where the next event may open after a broken one: an object that begins with a key."""
    while i < end:
        if buf[i] == _OPEN:
            place = _blank(buf, i + 1, end)
            follows = _key_follows(buf, place, end)
            if follows != 0:
                before = i - 1
                while before >= 0 and (buf[before] == 32 or buf[before] == 10 or buf[before] == 13):
                    before -= 1
                if before >= 0 and (buf[before] == _COMMA or buf[before] == _LIST):
                    return i
        i += 1
    return end


@compiled_exactly(ALWAYS_COMPILED, owned=False)
def scan(buf: Any, i: Any, end: Any, final: Any, offset: Any, tables: Any, tokens: Any, counts: Any) -> Any:
    """Keep the events from `i` on; return (why it ended, place from which to go on)."""
    while True:
        i = _blank(buf, i, end)
        if i >= end:
            return MORE, i
        if buf[i] == _COMMA:
            i += 1
            continue
        if buf[i] == _END:
            return DONE, i + 1
        token_count, quotes = counts[TOKENS], counts[QUOTES]
        stop = event_end(buf, i, end, final, tables, tokens, counts) if buf[i] == _OPEN else _BAD
        if stop >= 0:
            counts[EVENTS] += 1
            i = stop
            continue
        counts[TOKENS], counts[QUOTES] = token_count, quotes
        if stop == _SHORT:
            return MORE, i
        if stop == _NO_ROOM:
            return FULL, i
        if counts[BROKEN] == 0:
            counts[FIRST_BROKEN] = offset + i
        counts[BROKEN] += 1
        i = _next_event(buf, i + 1, end)


@compiled_exactly(ALWAYS_COMPILED)
def top_level(buf: Any, i: Any, end: Any, final: Any) -> Any:
    """Return (start and end of the key at `i`, start and end of its value); a list of events has no end yet.

    The first figure is negative where no key stands there.
    """
    stop, place = _key(buf, i, end, final)
    if stop < 0:
        return stop, stop, place, place
    if buf[place] == _LIST and _is(buf, i + 1, stop, _EVENTS):
        return i + 1, stop, place, place
    if buf[place] == _QUOTE:
        none = np.zeros(8, np.int64)
        after = text_end(buf, place + 1, end, final, none, -1, none, np.zeros(1, np.uint8))
        after = after + 1 if after >= 0 else after
    elif buf[place] == _LIST or buf[place] == _OPEN:
        after = span_end(buf, place, end, final)
    else:
        after = place
        while after < end and buf[after] != _COMMA and buf[after] != _CLOSE:
            after += 1
        after = _SHORT if after >= end and not final else after
    return (i + 1, stop, place, after) if after >= 0 else (after, after, place, place)
