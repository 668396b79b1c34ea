"""Number formats of products in libraries: bytes per element, execution unit, and kernel tiles."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.work.dtype import DTYPES, DType
from nearpeak.core.work.scheme import Scheme
from nearpeak.core.work.target import Target
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.product_units import figures_of, formats_of, unit_of


def _tiles(*extents: tuple[int, int]) -> tuple[Any, Any]:
    """Return extents along m and along n as kernels read them."""
    return np.array([float(m) for m, _ in extents]), np.array([float(n) for _, n in extents])


_TENSOR_TILES = _tiles(
    (256, 128), (128, 256), (128, 192), (128, 128), (64, 128), (128, 64), (64, 64), (128, 32), (64, 16), (16, 64),
)  # fmt: skip
"""Tiles along m and along n that libraries build kernels for matrix units with."""
_BLOCK_TILES = _tiles(*((m, n) for m in (256, 128, 64) for n in range(256, 15, -16)))
"""Likewise with block scales on Hopper, where kernels are compiled for the width that leaves the least tail."""
_VECTOR_TILES = _tiles(
    (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64),
)  # fmt: skip
"""Likewise for vector units, whose registers hold smaller tiles."""
_BATCHED_TILES = {
    "maxwell": _tiles((64, 128)), "pascal": _tiles((64, 128)), "turing": _tiles((64, 128), (64, 64), (32, 128)),
    "volta": _tiles((64, 64), (128, 32), (32, 128)), "ampere": _tiles((128, 128)),
}  # fmt: skip
"""Tiles along m and n on which NVIDIA's library runs batched fp32 products, by kernel names in NeuSight's tables."""
_HALF = 16
"""Bits of formats that matrix units took first."""
_SHORT = 32
"""Elements of the longest block whose scales are counted."""


def tile_sets(target: Target, dtype: str, batch: Any) -> list[tuple[Any, Any]]:
    """Return rows with the tiles that libraries have for them."""
    single, batched = (tiles_of(target, dtype, is_batched=several) for several in (False, True))
    if single is batched:
        return [(slice(None), single)]
    sets = [(np.flatnonzero(batch > 1), batched), (np.flatnonzero(batch <= 1), single)]
    return [(rows, each) for rows, each in sets if len(rows)]


def tiles_of(target: Target, dtype: str, *, is_batched: bool) -> tuple[Any, Any]:
    """Return the tiles that libraries have for single products, or for batches of them: extents along m and along n."""
    if target.architecture == "hopper" and dtype == "fp8_block":
        return _BLOCK_TILES
    if dtype not in ("fp32", "fp64"):
        return _TENSOR_TILES
    return _BATCHED_TILES.get(target.architecture, _VECTOR_TILES) if is_batched else _VECTOR_TILES


def runs_small_whole(target: Target, dtypes: Mapping[str, str]) -> bool:
    """Return whether NVIDIA's library runs the smallest products in one kernel along all of k.

    Measured on the L40S in bf16: with more than one row, less than 2^21 products of elements and k up to 8192 the time
    is 1.6 us and 4.1 ns for each element along k, whatever m and n; beyond, and on Ampere, Hopper and Blackwell, sums
    are split, which takes 4 to 6 us.

    >>> from nearpeak.targets import target_of
    >>> [runs_small_whole(target_of(name), {"dtype": "bf16"}) for name in ("l40s", "h100_sxm")]
    [True, False]
    """
    dtype = DTYPES[dtypes["dtype"]]
    return target.architecture == "ada" and dtype.scheme is None and dtype.bits_count == _HALF


def stored_bytes(operand: DType, scheme: Scheme | None) -> float:
    """Return bytes per element, with the scales of a scheme whose blocks are short for both factors."""
    size = operand.bits_count / 8
    short = scheme is not None and scheme.a.scaled and 0 < scheme.a.column_count <= _SHORT
    if scheme is None or not short:
        return size  # scales of long blocks, and those of weights alone, are left to the coefficients
    return size + DTYPES[scheme.scale].bits_count / 8 / scheme.a.column_count


def device_figures(target: Target, dtypes: Mapping[str, str], setting: Setting) -> Any:
    """Return the figures of the device that the kernel reads, in its order.

    Raises:
        NotModelledError: it states no bandwidth, no cache, or no rate for such products.
    """
    chosen = setting.quantises_input, setting.weight_copies_count, setting.host_timed
    return _device_figures(Same(target), tuple(dtypes.items()), chosen)


@lru_cache(maxsize=256)
def _device_figures(same: "Same[Target]", formats: tuple[tuple[str, str], ...], chosen: tuple[bool, int, bool]) -> Any:
    target, dtypes, (quantises_input, copies, host_timed) = same.held, dict(formats), chosen
    a, b, out = formats_of(dtypes)
    scheme = DTYPES[dtypes["dtype"]].scheme
    return np.array([
        *figures_of(target, unit_of(target, dtypes)),
        stored_bytes(a, scheme), stored_bytes(b, scheme), out.bits_count / 8, 2.0 if quantises_input else 0.0,
        copies, 128 // max(a.bits_count / 8, 0.5), 1.0 if a.bits_count < 8 else 0.0,
        float(host_timed), float(runs_small_whole(target, dtypes)),
    ])  # fmt: skip
