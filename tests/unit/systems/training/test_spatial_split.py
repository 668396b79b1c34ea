"""Spatial splits: tiles with exchanged halos give the whole convolution bit for bit, with the bytes counted."""

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.training.spatial_split import (
    SpatialLayer,
    Window,
    halos,
    statistics_bytes,
    tiles,
)


def layer(taps=(3, 3), stride=(1, 1), dilation=(1, 1), padding=(1, 1), channels=(3, 3)):
    rows, columns = (
        Window(taps=taps[dim], stride=stride[dim], dilation=dilation[dim], padding=padding[dim]) for dim in (0, 1)
    )
    return SpatialLayer(rows=rows, columns=columns, channel_count=channels[0], output_channel_count=channels[1])


def convolve(image, kernel, window, outputs, origin, size):
    """Outputs of a range of positions from an image whose first element lies at `origin` of an input of `size`."""
    rows, columns = (np.arange(*part) for part in outputs)
    total = np.zeros((kernel.shape[0], len(rows), len(columns)), np.float32)
    for channel, row, column in np.ndindex(kernel.shape[1:]):
        y = rows * window.rows.stride - window.rows.padding + row * window.rows.dilation
        x = columns * window.columns.stride - window.columns.padding + column * window.columns.dilation
        inside = ((y >= 0) & (y < size[0]))[:, None] & ((x >= 0) & (x < size[1]))[None, :]
        at_y, at_x = (np.clip(place - start, 0, extent - 1) for place, start, extent in
                      ((y, origin[0], image.shape[1]), (x, origin[1], image.shape[2])))  # fmt: skip
        values = np.where(inside, image[channel][at_y[:, None], at_x[None, :]], np.float32(0))
        total += kernel[:, channel, row, column][:, None, None] * values
    return total


LAYERS = [
    layer(), layer(taps=(5, 3), padding=(2, 1)), layer(stride=(2, 2)), layer(dilation=(2, 1), padding=(2, 1)),
    layer(taps=(1, 1), padding=(0, 0)), layer(taps=(3, 3), padding=(0, 0)),
    layer(taps=(7, 7), stride=(2, 2), padding=(3, 3)),
    layer(taps=(2, 2), stride=(2, 2), padding=(0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("parts", [(2, 1), (3, 2), (2, 3), (4, 1)])
@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_tiles_with_halos_give_the_whole_convolution_bit_for_bit(place, parts):
    window, size = LAYERS[place], (29, 26)
    random = np.random.default_rng(place)
    image = random.standard_normal((3, *size)).astype(np.float32)
    kernel = random.standard_normal((3, 3, window.rows.taps, window.columns.taps)).astype(np.float32)
    out = (window.rows.output_size(size[0]), window.columns.output_size(size[1]))
    whole = convolve(image, kernel, window, ((0, out[0]), (0, out[1])), (0, 0), size)
    result = np.full_like(whole, np.nan)
    split = halos([window], size, parts, image_count=1, element_bytes=4)
    for tile, (rows, columns) in zip(
        split, [(r, c) for r in tiles(out[0], parts[0]) for c in tiles(out[1], parts[1])], strict=True
    ):
        (y0, y1), (x0, x1) = tile.needed
        own = np.full_like(image, np.nan)
        own[:, slice(*tile.own[0]), slice(*tile.own[1])] = image[:, slice(*tile.own[0]), slice(*tile.own[1])]
        received = np.isnan(own[:, y0:y1, x0:x1])
        assert received.sum() * 4 == tile.received_bytes
        result[:, slice(*rows), slice(*columns)] = convolve(
            image[:, y0:y1, x0:x1], kernel, window, (rows, columns), (y0, x0), size
        )
    assert np.array_equal(result, whole)


def test_a_halo_is_the_closed_form_for_inner_tiles_with_corners():
    window = layer(taps=(5, 5), padding=(2, 2), channels=(8, 8))
    each = halos([window], (64, 64), (4, 1), image_count=2, element_bytes=2)
    assert each[1].received_bytes == 2 * 2 * 64 * 8 * 2 * 2, "2 sides of floor(r/2) rows, W, C, b, q"
    assert each[0].received_bytes == each[1].received_bytes / 2
    both = halos([window], (64, 64), (4, 4), image_count=2, element_bytes=2)[5]
    assert both.received_bytes == (2 * 2 * 16 * 2 + 4 * 2 * 2) * 8 * 2 * 2, "four sides and four corners"
    assert statistics_bytes(64) == 512


def test_fused_layers_exchange_once_and_compute_their_seams_twice():
    window = layer(channels=(4, 4))
    one, three = (halos([window] * count, (48, 48), (3, 1), image_count=1, element_bytes=2) for count in (1, 3))
    assert three[1].received_bytes == 3 * one[1].received_bytes
    assert (one[1].recompute_flop, three[1].recompute_flop) == (0, (2 + 4) * 48 * window.tap_flop)
    assert three[1].needed == ((13, 35), (0, 48))


def test_a_pool_whose_windows_meet_the_tiles_needs_nothing():
    pool = layer(taps=(2, 2), stride=(2, 2), padding=(0, 0))
    assert {tile.received_bytes for tile in halos([pool], (32, 32), (4, 2), image_count=1, element_bytes=2)} == {0}
    uneven = halos([pool], (30, 32), (4, 1), image_count=1, element_bytes=2)
    assert max(tile.received_bytes for tile in uneven) > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tiles(3, 4), "each needs at least one"),
        (lambda: halos([layer()] * 9, (16, 16), (4, 1), image_count=1, element_bytes=2), "fuse fewer layers"),
        (lambda: Window(taps=0), "at least 1"),
    ],
)
def test_splits_that_cannot_be_are_one_line(call, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        call()
    assert words in str(error.value)
