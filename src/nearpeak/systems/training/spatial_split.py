"""Spatial split of convolutions and pools: rows and columns that tiles receive from their neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from nearpeak.errors import SpecError

Interval = tuple[int, int]
"""First position and the one after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a convolution or pool looks at one dimension of its input."""

    taps: int
    """Taps of the kernel."""
    stride: int = 1
    """Input positions between two outputs."""
    dilation: int = 1
    """Input positions between two taps."""
    padding: int = 0
    """Zeros at each end."""

    def __post_init__(self) -> None:
        """Refuse windows that no layer has."""
        if min(self.taps, self.stride, self.dilation) < 1 or self.padding < 0:
            raise SpecError(f"spatial split: taps, stride and dilation must be at least 1, padding at least 0: {self}")

    def output_size(self, size: int) -> int:
        """Return the outputs of an input of this size."""
        return (size + 2 * self.padding - self.dilation * (self.taps - 1) - 1) // self.stride + 1

    def needed(self, outputs: Interval, size: int) -> Interval:
        """Return the inputs that a range of outputs reads, padding left out.

        >>> Window(taps=3, padding=1).needed((4, 8), 16), Window(taps=3, stride=2, padding=1).needed((4, 8), 16)
        ((3, 9), (7, 16))
        """
        first = outputs[0] * self.stride - self.padding
        last = (outputs[1] - 1) * self.stride - self.padding + (self.taps - 1) * self.dilation
        return max(first, 0), min(last + 1, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpatialLayer:
    """A convolution or pool over an image."""

    rows: Window
    """Its window along the height."""
    columns: Window
    """Its window along the width."""
    channel_count: int
    """Channels of its input."""
    output_channel_count: int
    """Channels of its output."""

    @property
    def tap_flop(self) -> int:
        """FLOP of one output position over all channels, of a dense convolution."""
        return 2 * self.rows.taps * self.columns.taps * self.channel_count * self.output_channel_count


@dataclass(frozen=True, slots=True, kw_only=True)
class TileHalo:
    """What one tile of a split receives before it runs some layers by itself."""

    own: tuple[Interval, Interval]
    """Rows and columns of the input that it holds."""
    needed: tuple[Interval, Interval]
    """Rows and columns that it reads."""
    received_bytes: int
    """Bytes from neighbours, corners included."""
    recompute_flop: int
    """Work on positions of inner layers that another tile computes too."""


def tiles(size: int, part_count: int) -> tuple[Interval, ...]:
    """Return the parts of a dimension, as equal as whole numbers allow, larger ones first.

    >>> tiles(7, 3)
    ((0, 3), (3, 5), (5, 7))
    """
    if not 1 <= part_count <= size:
        raise SpecError(f"spatial split: {size} positions on {part_count} ranks; each needs at least one")
    each, more = divmod(size, part_count)
    starts = [place * each + min(place, more) for place in range(part_count + 1)]
    return tuple(pairwise(starts))


def halos(
    layers: Sequence[SpatialLayer], size: tuple[int, int], parts: tuple[int, int], *, image_count: int,
    element_bytes: int,
) -> tuple[TileHalo, ...]:  # fmt: skip
    """Return what each tile receives so that it can run `layers` one after the other without a further exchange.

    With one layer this is the exchange per layer; with several, halos grow by each window, and inner positions that
    two tiles need are computed twice.

    Args:
        size: height and width of the first layer's input.
        parts: tiles along height and width.
        image_count: images of a micro-batch.

    Raises:
        SpecError: fewer positions than tiles, or a tile needs more than its direct neighbours hold.

    >>> layer = SpatialLayer(rows=Window(taps=3, padding=1), columns=Window(taps=3, padding=1), channel_count=8,
    ...                      output_channel_count=8)
    >>> [tile.received_bytes for tile in halos([layer], (32, 32), (2, 1), image_count=1, element_bytes=2)]
    [512, 512]
    """
    sizes = [size]
    for layer in layers:
        sizes.append((layer.rows.output_size(sizes[-1][0]), layer.columns.output_size(sizes[-1][1])))
    held = [tuple(tiles(extent, count) for extent, count in zip(each, parts, strict=True)) for each in sizes]
    tile_halos = []
    for place in product(range(parts[0]), range(parts[1])):
        region = tuple(held[-1][dim][place[dim]] for dim in (0, 1))
        recompute = 0
        for depth in range(len(layers) - 1, -1, -1):
            layer = layers[depth]
            if depth < len(layers) - 1:
                held_region = tuple(held[depth + 1][dim][place[dim]] for dim in (0, 1))
                recompute += image_count * layer.tap_flop * (_area(region) - _shared(region, held_region))
            region = (layer.rows.needed(region[0], sizes[depth][0]), layer.columns.needed(region[1], sizes[depth][1]))
        held_region = tuple(held[0][dim][place[dim]] for dim in (0, 1))
        _check_reach(region, held[0], place)
        missing = _area(region) - _shared(region, held_region)
        tile_halos.append(TileHalo(
            own=(held_region[0], held_region[1]), needed=(region[0], region[1]), recompute_flop=recompute,
            received_bytes=missing * image_count * layers[0].channel_count * element_bytes,
        ))  # fmt: skip
    return tuple(tile_halos)


def statistics_bytes(channel_count: int, element_bytes: int = 4) -> int:
    """Return the all-reduce of batch-norm statistics over the tiles: a sum and a sum of squares per channel."""
    return 2 * channel_count * element_bytes


def _area(region: Sequence[Interval]) -> int:
    rows, columns = region
    return max(0, rows[1] - rows[0]) * max(0, columns[1] - columns[0])


def _shared(region: Sequence[Interval], held: Sequence[Interval]) -> int:
    """Return the positions that two regions have in common."""
    both = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(region, held, strict=True)]
    return _area(both)


def _check_reach(region: Sequence[Interval], held: Sequence[tuple[Interval, ...]], place: tuple[int, int]) -> None:
    """Refuse a halo that reaches beyond the direct neighbours."""
    for dim, label in ((0, "height"), (1, "width")):
        first, last = max(place[dim] - 1, 0), min(place[dim] + 1, len(held[dim]) - 1)
        if region[dim][0] < held[dim][first][0] or region[dim][1] > held[dim][last][1]:
            raise SpecError(
                f"spatial split: along the {label}, tile {place[dim]} of {len(held[dim])} reads beyond its direct "
                "neighbours; take fewer tiles or fuse fewer layers"
            )
