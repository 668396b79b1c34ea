"""Time of a step from a table: linear between knots, and beyond the last ones along the last segment."""

from typing import Any

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import PLAIN_REQUESTS
from nearpeak.systems.serving.engine_state import GridArrays


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def segment(knots: Any, place: float) -> int:
    """Return the segment of a place among rising knots; those outside belong to the first and the last."""
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= place:
            low = middle
        else:
            high = middle
    return low


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def on_line(knots: Any, values: Any, place: float) -> float:
    """Return the value at a place."""
    low = segment(knots, place)
    share = (place - knots[low]) / (knots[low + 1] - knots[low])
    return float(values[low] + share * (values[low + 1] - values[low]))


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def on_plane(rows: Any, columns: Any, values: Any, row: float, column: float) -> float:
    """Return the value between four knots."""
    low, left = segment(rows, row), segment(columns, column)
    down = (row - rows[low]) / (rows[low + 1] - rows[low])
    across = (column - columns[left]) / (columns[left + 1] - columns[left])
    upper = values[low][left] + across * (values[low][left + 1] - values[low][left])
    lower = values[low + 1][left] + across * (values[low + 1][left + 1] - values[low + 1][left])
    return float(upper + down * (lower - upper))


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def step_seconds(
    table: GridArrays, prompt_tokens: int, prompt_pairs: int, prompt_sequences: int, decode_tokens: int,
    decode_sequences: int, decode_kv: int, longest_kv: int,
) -> float:  # fmt: skip
    """Return the time of a step.

    A step of decoding sequences takes at least what its longest cache takes by itself.
    """
    rows, columns = table.decode_knots, table.cache_knots
    if prompt_tokens == 0 and decode_tokens == decode_sequences:
        even = on_plane(rows, columns, table.decode_s, decode_sequences, decode_kv / decode_sequences)
        return float(max(even, on_plane(rows, columns, table.decode_s, 1.0, longest_kv)))
    time = on_line(table.token_knots, table.token_s, prompt_tokens + decode_tokens)
    time += on_line(table.head_knots, table.head_s, prompt_sequences + decode_tokens)
    if prompt_tokens > 0:
        mean = prompt_pairs / prompt_tokens
        time += on_plane(table.prompt_knots, table.prefix_knots, table.prompt_s, prompt_tokens, mean)
    if decode_sequences > 0:
        even = on_plane(rows, columns, table.beside_s, decode_sequences, decode_kv / decode_sequences)
        time += max(even, on_plane(rows, columns, table.beside_s, 1.0, longest_kv))
    return float(time)
