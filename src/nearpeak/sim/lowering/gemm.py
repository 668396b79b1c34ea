"""Matrix products: the tile and split that end first, as blocks that stay and work through their tiles."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._interpolation import correction_at
from nearpeak.sim.device import L2_PORT_BYTES
from nearpeak.sim.lowering._lowering import Lowering, ceilings, filling, ps
from nearpeak.sim.work import Kernel, Phase

_TILES = np.array([
    (256, 128), (128, 256), (128, 192), (128, 128), (64, 128), (128, 64), (64, 64), (128, 32), (64, 16), (16, 64),
], dtype=float)  # fmt: skip
"""Extents along m and n of tiles that libraries build for matrix units (CUTLASS, cuBLAS kernel names)."""
_SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
_SHOWN_RATIO = 0.4
"""Share of the last partial wave that persistent kernels do not hide; weakly pinned down by sweeps over waves."""
_SATURATING = 4.0
"""A quarter of the multiprocessors saturates memory."""
_CLOCK_S = 1e-4
"""Time after which the clock falls."""
_LARGEST = 0.25
"""Largest difference, as a logarithm, that the quality of a library's kernel makes."""
_OVERLAP = 4.0
"""Power at which products, cache, memory and latency overlap: 1 would be one after the other."""


class Product(NamedTuple):
    """What a product needs of a device, free of tiles."""

    m: float
    n: float
    k: float
    batch: float
    a_bytes: float
    b_bytes: float
    c_bytes: float
    flop_per_s: float
    clock_hz: float


def _kernels(case: Case, target: Target) -> tuple[Kernel, ...]:
    scalars, library = ceilings(case, target, "gemm")
    product = _product(case, target)
    pace = 1.0
    if library:
        exponent = float(correction_at(np.array(library), product.m * product.batch, product.n, product.k))
        pace = math.exp(min(max(exponent, -_LARGEST), _LARGEST))
    return (kernel_of(product, target, scalars, pace, case.op),)


def _product(case: Case, target: Target) -> Product:
    named = dict(case.dtypes)
    dtype = DTYPES[named["dtype"]]
    if dtype.scheme is not None:
        raise NotModelledError(f"simulate: no lowering of products in {dtype.name}")
    b, out = (DTYPES[named.get(name) or dtype.name] for name in ("b_dtype", "out_dtype"))
    units = [unit for unit in dtype.matrix_units if unit in target.peaks]
    if not units:
        raise NotModelledError(f"{target.name}: states no rate for products of {dtype.name}")
    peak = max((target.peaks[unit] for unit in units), key=lambda one: one.flop_per_s)
    extents = dict(case.axes)
    axes = {name: float(extents.get(name, 1)) for name in ("m", "n", "k", "batch")}
    return Product(
        **axes, a_bytes=dtype.bits_count / 8, b_bytes=b.bits_count / 8, c_bytes=out.bits_count / 8,
        flop_per_s=peak.flop_per_s, clock_hz=peak.clock_hz,
    )  # fmt: skip


def kernel_of(product: Product, target: Target, scalars: Mapping[str, float], pace: float, name: str) -> Kernel:
    """Return the kernel of the tile and split whose blocks end first.

    `pace` is by how much slower than usual the library's kernel for this size is.
    """
    sm, p = target.sm_count, product
    read_b, write_b = _misses(p, target, scalars)
    bandwidth = target.dram.bandwidth_bytes_per_s or 1.0
    memory_s = read_b / (scalars["dram_ratio"] * bandwidth) + write_b / (scalars["store_ratio"] * bandwidth)
    tile_m, tile_n, split = _choices(p)
    tiles = p.batch * np.ceil(p.m / tile_m) * np.ceil(p.n / tile_n)
    deep = 128 // max(p.a_bytes, 0.5)
    depth = deep * np.ceil(p.k / (deep * split))
    load = tiles * split / sm
    waves = np.where(load > 1, load + _SHOWN_RATIO * (np.ceil(load) - load), 1.0)
    tensor = waves * depth * 2 * tile_m * tile_n * sm / (scalars["tensor_ratio"] * p.flop_per_s)
    start = waves * scalars["tile_start_s"]
    width = scalars["balanced_elements"] * sm / p.flop_per_s * 0.5 * (p.a_bytes + p.b_bytes) / max(p.a_bytes, p.b_bytes)
    cache = np.maximum(load, 1.0) * depth * (tile_m + tile_n) * width
    busy = np.minimum(load, 1.0)
    full = np.maximum(1.0, 1.0 / (busy * _SATURATING))
    chain = waves * depth * scalars["step_s"] / deep
    l2 = L2_PORT_BYTES * p.clock_hz * sm
    c_bytes = p.batch * p.m * p.n * p.c_bytes
    store = (
        scalars["exposed_store_ratio"] * (write_b / (scalars["store_ratio"] * bandwidth) + c_bytes / l2) * full / waves
    )
    part_s = p.batch * p.m * p.n * 4.0 / l2
    reduce = np.where(split > 1, scalars["split_s"] + (split + 1) * part_s / busy, 0.0)
    body = ((tensor + start) ** _OVERLAP + cache**_OVERLAP + (memory_s * full) ** _OVERLAP + chain**_OVERLAP) ** (
        1 / _OVERLAP
    )
    ramp = scalars["grid_ramp_s"] * busy
    whole = body + store + reduce + ramp
    allowed = (split == 1) | ((tiles * split <= 2 * sm) & (p.k >= 4 * deep * split))
    best = int(np.argmin(np.where(allowed, whole, np.inf)))
    ctas = max(1, round(min(tiles[best] * split[best], sm)))
    first = tensor[best] + start[best]
    longest = max(first, cache[best], memory_s * full[best], chain[best])
    hot = first * scalars["clock_ratio"] * first / whole[best] * first / (first + _CLOCK_S)
    start_s = (scalars["launch_s"] + ramp[best]) * pace
    phases = (
        Phase(fixed_ps=ps(start_s)),
        Phase(
            fixed_ps=ps(longest * pace), pipe_s={"tensor": tensor[best] * pace, "shared": cache[best] * pace},
            pool_bytes={"dram": (read_b + write_b) / ctas, "l2": (read_b + write_b) / ctas},
        ),
        Phase(fixed_ps=ps((body[best] - longest + store[best] + reduce[best] + hot) * pace)),
    )  # fmt: skip
    return Kernel(name=name, cta_count=ctas, phases=phases, needs=filling(target))


def _misses(p: Product, target: Target, scalars: Mapping[str, float]) -> tuple[float, float]:
    """Return the bytes read and written that the cache does not keep; weights of other layers pass in between."""
    a, b, c = p.batch * p.m * p.k * p.a_bytes, p.batch * p.n * p.k * p.b_bytes, p.batch * p.m * p.n * p.c_bytes
    cache = float(target.l2.capacity_bytes or 1)
    copies = 5.0
    if copies * b > cache:
        copies = min(max(math.ceil(cache / b), 1.0), copies)
    kept = 1.0 / (scalars["residency_ratio"] * cache)
    miss_b = min(max((copies * b + a + c) * kept - 0.5, 0.0), 1.0)
    miss_a = min(max((b + a + c) * kept - 0.5, 0.0), 1.0)
    return a * miss_a + b * miss_b, c * miss_a


def _choices(p: Product) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tiles and splits to try: none where half the tile covers as much."""
    fits = [
        (m, n) for m, n in _TILES
        if not ((m >= 2 * p.m and m > 64) or (n >= 2 * p.n and n > 64))
    ]  # fmt: skip
    tiles = np.array(fits or _TILES[-2:])
    return np.repeat(tiles[:, 0], len(_SPLITS)), np.repeat(tiles[:, 1], len(_SPLITS)), np.tile(_SPLITS, len(tiles))


LOWERING = Lowering(ops=("gemm",), kernels=_kernels)
