"""The model of the device's caching allocator."""

import random

import pytest

from nearpeak.systems.training.memory.caching_allocator import Event, allocator_peaks

MIB = 2**20


def _events(seed: int, count: int) -> list[Event]:
    draw = random.Random(seed)
    alive: list[int] = []
    events: list[Event] = []
    for number in range(count):
        if alive and draw.random() < 0.48:
            events.append((alive.pop(draw.randrange(len(alive))), 0))
        else:
            events.append((number, int(2 ** draw.uniform(8, 26))))
            alive.append(number)
    return events


@pytest.mark.parametrize(
    ("size", "reserved"),
    [(1, 2), (MIB, 2), (MIB + 1, 20), (9 * MIB, 20), (10 * MIB, 10), (11 * MIB + 1, 12), (100 * MIB, 100)],
)
def test_one_tensor_reserves_the_segment_of_its_size_class(size: int, reserved: int) -> None:
    assert allocator_peaks([("a", size)]).reserved_bytes == reserved * MIB


def test_a_freed_block_serves_again_and_leaves_at_most_a_mebibyte_unsplit() -> None:
    peaks = allocator_peaks([("a", 40 * MIB), ("a", 0), ("b", 39 * MIB), ("c", MIB + 512)])
    assert peaks.reserved_bytes == 60 * MIB  # the mebibyte above b is not split off
    peaks = allocator_peaks([("a", 40 * MIB), ("a", 0), ("b", 38 * MIB), ("c", 2 * MIB)])
    assert peaks.reserved_bytes == 40 * MIB


def test_freed_neighbours_merge() -> None:
    events: list[Event] = [
        ("a", 40 * MIB),
        ("a", 0),
        ("b", 20 * MIB),
        ("c", 20 * MIB),
        ("b", 0),
        ("c", 0),
        ("d", 40 * MIB),
    ]
    assert allocator_peaks(events).reserved_bytes == 40 * MIB


def test_reserved_memory_bounds_allocated_whatever_the_segments() -> None:
    for seed in range(6):
        events = _events(seed, 600)
        plain, expandable = allocator_peaks(events), allocator_peaks(events, is_expandable=True)
        assert plain.allocated_bytes == expandable.allocated_bytes
        assert plain.allocated_bytes <= min(plain.reserved_bytes, expandable.reserved_bytes)


def test_equal_steps_reserve_no_more_than_the_first_two() -> None:
    step = _events(3, 300)
    alive = [key for key, size in step if size and (key, 0) not in step]
    whole = [*step, *((key, 0) for key in alive)]
    twice, often = (
        allocator_peaks([((number, key), size) for number in range(count) for key, size in whole]) for count in (2, 6)
    )
    assert often.reserved_bytes <= 1.05 * twice.reserved_bytes
