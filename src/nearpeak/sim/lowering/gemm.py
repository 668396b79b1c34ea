"""Matrix products: the tile and split that end first, as blocks that stay and work through their tiles."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.predict._form import Setting
from nearpeak.predict._gemm_units import formats_of, unit_of
from nearpeak.predict._interpolation import correction_at
from nearpeak.predict._product_formats import stored_bytes, tile_sets
from nearpeak.sim.device import L2_PORT_BYTES
from nearpeak.sim.lowering._lowering import Lowering, ceilings, filling, ps
from nearpeak.sim.work import Kernel, Phase

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
_PADDED = 128
"""Multiple to which n and k are padded where operands of four bits need whole blocks."""
_REACH_BYTES = 1e6
"""Bytes whose addresses a multiprocessor keeps translated: where products of P4 and P100 slow down."""
_VECTOR_BYTES, _WIDE = 4.0, 4.0
"""Least element that vector units load, and how far beyond that reach loads go on slowing down."""


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
    tiles: Any
    """Extents along m and along n of the tiles that libraries have kernels for."""
    setting: Setting


class Choice(NamedTuple):
    """The tile and split that were taken, as times of the whole kernel's resources."""

    ctas: int
    tensor_s: float
    first_s: float
    """Products with what starting tiles costs."""
    cache_s: float
    memory_s: float
    chain_s: float
    body_s: float
    tail_s: float
    """Stores and reductions that nothing hides."""
    ramp_s: float


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    scalars, library = ceilings(case, target, "gemm")
    product = _product(case, target, setting)
    pace = 1.0
    if library:
        exponent = float(correction_at(np.array(library), product.m * product.batch, product.n, product.k))
        pace = math.exp(min(max(exponent, -_LARGEST), _LARGEST))
    before: tuple[Kernel, ...] = ()
    if setting.quantises_input:
        narrow = formats_of(dict(case.dtypes))[0].bits_count < 8
        before = (_quantising(product, target, scalars, pace, narrow),)
    return (*before, kernel_of(product, target, scalars, pace, case.op))


def _product(case: Case, target: Target, setting: Setting) -> Product:
    named, extents = dict(case.dtypes), dict(case.axes)
    a, b, out = formats_of(named)
    peak = target.peaks[unit_of(target, named)]
    scheme = DTYPES[named["dtype"]].scheme
    axes = {name: float(extents.get(name, 1)) for name in ("m", "n", "k", "batch")}
    (_, tiles), *_ = tile_sets(target, named["dtype"], np.array([axes["batch"]]))
    return Product(
        **axes, a_bytes=stored_bytes(a, scheme), b_bytes=stored_bytes(b, scheme), c_bytes=out.bits_count / 8,
        flop_per_s=peak.flop_per_s, clock_hz=peak.clock_hz, tiles=tiles, setting=setting,
    )  # fmt: skip


def kernel_of(product: Product, target: Target, scalars: Mapping[str, float], pace: float, name: str) -> Kernel:
    """Return the kernel of the tile and split whose blocks end first.

    `pace` is by how much slower than usual the library's kernel for this size is.
    """
    read_b, write_b = _misses(product, target, scalars)
    best = _chosen(product, target, scalars, read_b, write_b)
    longest = max(best.first_s, best.cache_s, best.memory_s, best.chain_s)
    hot = best.first_s * scalars["clock_ratio"] * best.first_s / (best.body_s + best.tail_s + best.ramp_s)
    hot *= best.first_s / (best.first_s + _CLOCK_S)
    host = scalars["host_s"] if product.setting.host_timed else 0.0
    phases = (
        Phase(fixed_ps=ps((scalars["launch_s"] + best.ramp_s + host) * pace)),
        Phase(
            fixed_ps=ps(longest * pace), pipe_s={"tensor": best.tensor_s * pace, "shared": best.cache_s * pace},
            pool_bytes=dict.fromkeys(("dram", "l2"), (read_b + write_b) / best.ctas),
        ),
        Phase(fixed_ps=ps((best.body_s - longest + best.tail_s) * pace)),
        Phase(fixed_ps=ps(hot * pace), sags=True),
    )  # fmt: skip
    return Kernel(name=name, cta_count=best.ctas, phases=phases, needs=filling(target))


def _chosen(p: Product, target: Target, scalars: Mapping[str, float], read_b: float, write_b: float) -> Choice:
    """Return the tile and split that end first."""
    sm, bandwidth = target.sm_count, target.dram.bandwidth_bytes_per_s or 1.0
    slower = _far(p, target, scalars)
    memory_s = read_b * slower / (scalars["dram_ratio"] * bandwidth) + write_b / (scalars["store_ratio"] * bandwidth)
    tile_m, tile_n, split = _choices(p)
    tiles = p.batch * np.ceil(p.m / tile_m) * np.ceil(p.n / tile_n)
    deep = 128 // max(p.a_bytes, 0.5)
    depth, load = deep * np.ceil(p.k / (deep * split)), tiles * split / sm
    waves = np.where(load > 1, load + _SHOWN_RATIO * (np.ceil(load) - load), 1.0)
    tensor = waves * depth * 2 * tile_m * tile_n * sm / (scalars["tensor_ratio"] * p.flop_per_s)
    first = tensor + waves * scalars["tile_start_s"]
    width = scalars["balanced_elements"] * sm / p.flop_per_s * 0.5 * (p.a_bytes + p.b_bytes) / max(p.a_bytes, p.b_bytes)
    cache = np.maximum(load, 1.0) * depth * (tile_m + tile_n) * width * slower
    busy = np.minimum(load, 1.0)
    full = np.maximum(1.0, 1.0 / (busy * _SATURATING))
    memory, chain = memory_s * full, waves * depth * scalars["step_s"] / deep
    tail = _tail(p, target, scalars, write_b, (split, busy, full, waves))
    body = (first**_OVERLAP + cache**_OVERLAP + memory**_OVERLAP + chain**_OVERLAP) ** (1 / _OVERLAP)
    ramp = scalars["grid_ramp_s"] * busy
    allowed = (split == 1) | ((tiles * split <= 2 * sm) & (p.k >= 4 * deep * split) & (p.batch == 1))
    best = int(np.argmin(np.where(allowed, body + tail + ramp, np.inf)))
    columns = (tensor, first, cache, memory, chain, body, tail, ramp)
    return Choice(max(1, round(min(tiles[best] * split[best], sm))), *(float(column[best]) for column in columns))


def _tail(p: Product, target: Target, scalars: Mapping[str, float], write_b: float, shape: tuple[Any, ...]) -> Any:
    """Return what stores and, where K is split, adding up cost beyond the products."""
    split, busy, full, waves = shape
    l2 = L2_PORT_BYTES * p.clock_hz * target.sm_count
    product_b = p.batch * p.m * p.n
    write_s = write_b / (scalars["store_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0))
    store = scalars["exposed_store_ratio"] * (write_s + product_b * p.c_bytes / l2) * full / waves
    reduce = scalars["split_s"] + (split + 1) * product_b * 4.0 / l2 / busy
    return store + np.where(split > 1, reduce, 0.0)


def _misses(p: Product, target: Target, scalars: Mapping[str, float]) -> tuple[float, float]:
    """Return the bytes read and written that the cache does not keep; weights of other layers pass in between."""
    a, b, c = p.batch * p.m * p.k * p.a_bytes, p.batch * p.n * p.k * p.b_bytes, p.batch * p.m * p.n * p.c_bytes
    cache, copies = float(target.l2.capacity_bytes or 1), float(p.setting.weight_copies_count)
    if copies > 1 and copies * b > cache:
        copies = min(max(math.ceil(cache / b), 1.0), copies)
    kept = 1.0 / (scalars["residency_ratio"] * cache)
    miss_b = min(max((copies * b + a + c) * kept - 0.5, 0.0), 1.0)
    miss_a = min(max((b + a + c) * kept - 0.5, 0.0), 1.0)
    fresh = 0.0 if p.setting.quantises_input and a < 0.5 * cache else miss_a
    return a * fresh + b * miss_b, c * miss_a


def _far(p: Product, target: Target, scalars: Mapping[str, float]) -> float:
    """Return by how much loads of a single product slow down whose rows are no whole lines, near and far."""
    deep = 128 // max(p.a_bytes, 0.5)
    whole = p.k % deep == 0 and p.m % deep == 0
    if whole or p.batch > 1 or p.a_bytes < _VECTOR_BYTES:
        return 1.0
    pages = (p.m * p.k * p.a_bytes + p.n * p.k * p.b_bytes) / (_REACH_BYTES * target.sm_count)
    return 1.0 + scalars["unaligned_ratio"] + scalars["far_ratio"] * min(max(pages - 0.5, 0.0), _WIDE)


def _choices(p: Product) -> tuple[Any, Any, Any]:
    """Return tiles and splits to try: none where half the tile covers as much."""
    tile_m, tile_n = p.tiles
    fits = ~(((tile_m >= 2 * p.m) & (tile_m > 64)) | ((tile_n >= 2 * p.n) & (tile_n > 64)))
    if len(tile_m) > 1 and fits.any():
        tile_m, tile_n = tile_m[fits], tile_n[fits]
    return np.repeat(tile_m, len(_SPLITS)), np.repeat(tile_n, len(_SPLITS)), np.tile(_SPLITS, len(tile_m))


def _quantising(p: Product, target: Target, scalars: Mapping[str, float], pace: float, narrow: bool) -> Kernel:
    """Return the kernel that quantises A from bf16 first."""
    moved, rows = p.batch * p.m * p.k * (2.0 + p.a_bytes), p.batch * p.m / target.sm_count
    miss = min(max(moved / (scalars["residency_ratio"] * float(target.l2.capacity_bytes or 1)) - 0.5, 0.0), 1.0)
    row_s = scalars["quantise_row_s"] * rows + scalars["quantise_ramp_s"] * rows / (1.0 + rows)
    port = L2_PORT_BYTES * p.clock_hz * target.sm_count
    bandwidth = scalars["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0)
    byte_s = moved * (miss / bandwidth + scalars["quantise_passes_count"] / port)
    padded = narrow and (p.n % _PADDED or p.k % _PADDED)
    ctas = max(1, round(min(p.batch * p.m, target.sm_count)))
    phases = (
        Phase(fixed_ps=ps((scalars["quantise_s"] + (scalars["pad_s"] if padded else 0.0)) * pace)),
        Phase(fixed_ps=ps(math.hypot(row_s, byte_s) * pace), pool_bytes={"dram": moved * miss / ctas}),
    )
    return Kernel(name="quantise", cta_count=ctas, phases=phases, needs=filling(target))


LOWERING = Lowering(ops=("gemm", "scaled_gemm"), kernels=_kernels)
