"""Taps of sliding windows against counting every position."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.ops.shared.window_taps import output_extent, taps, windows

WINDOW = st.tuples(*(st.integers(low, high) for low, high in ((1, 12), (0, 9), (1, 6), (1, 5), (0, 6), (1, 4))))


def counted(size, outputs, kernel, stride, padding, dilation):
    pairs = [
        (o, k, o * stride - padding + k * dilation)
        for o in range(outputs)
        for k in range(kernel)
        if 0 <= o * stride - padding + k * dilation < size
    ]
    return len(pairs), *(len({pair[column] for pair in pairs}) for column in (2, 0, 1))


@given(WINDOW)
def test_taps_equal_counting_every_pair(row):
    found = taps(*row)
    assert (found.pair_count, found.touched_count, found.live_output_count, found.live_tap_count) == counted(*row)


def test_taps_of_arrays_equal_those_of_integers():
    rows = np.random.default_rng(1).integers(1, 9, (40, 6))
    together = taps(*rows.T)
    assert [int(n) for n in together.pair_count] == [taps(*(int(x) for x in row)).pair_count for row in rows]


@pytest.mark.parametrize(("extent", "percent"), [(56, 97.6), (28, 95.3), (14, 90.7), (7, 81.9)])
def test_padded_three_by_three_needs_less_than_dense_taps(extent, percent):
    plane = windows((extent, 3, 1, 1, None, 1), (extent, 3, 1, 1, None, 1))
    assert round(100 * plane.pair_count / (plane.outputs * plane.taps), 1) == percent


def test_last_window_may_not_start_in_the_end_padding():
    assert output_extent(5, 2, 2, 1, None, 1, ceil=True) == 3
    assert output_extent(5, 2, 3, 1, None, 1, ceil=True) == 2


def test_kernel_larger_than_the_padded_input_gives_no_output():
    assert windows((3, 5, 1, 0, None, 1)).pair_count == 0


def test_stride_zero_is_refused():
    with pytest.raises(SpecError, match="sw=0"):
        windows((8, 3, 0, 1, None, 1))


def test_columns_of_narrow_and_wide_kernels_equal_single_rows():
    random = np.random.default_rng(2)
    table = np.stack([random.integers(low, high, 600) for low, high in
                      ((0, 90), (0, 60), (1, 9), (1, 6), (0, 9), (1, 5))])  # fmt: skip
    table[2, ::7] = random.integers(30, 60, len(table[2, ::7]))
    together = taps(*table)
    for index, row in enumerate(table.T):
        alone = taps(*(int(x) for x in row))
        for name in ("pair_count", "touched_count", "live_output_count", "live_tap_count"):
            assert int(getattr(together, name)[index]) == getattr(alone, name), (name, row)


def test_columns_of_wide_integers_stay_exact():
    row = (np.array([2**45, 3], dtype=object), 3, 1, 1, None, 1)
    found = windows(row, row)
    assert list(found.pair_count) == [(3 * 2**45 - 2) ** 2, 49]


def test_fifty_thousand_different_rows_take_no_noticeable_time():
    random = np.random.default_rng(0)
    rows = [random.integers(low, high, 50_000) for low, high in ((8, 512), (1, 8), (1, 3), (0, 3))]
    start = time.process_time()
    windows((rows[0], rows[1], rows[2], rows[3], None, 1), (rows[0], rows[1], 1, rows[3], None, 1))
    assert time.process_time() - start < 2  # a loop over rows takes many times as long
