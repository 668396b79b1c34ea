"""Matrix products: the fastest tile and split as persistent thread blocks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.ops import case as case_of
from nearpeak.prediction.gemm.best_tile import BestTile, best_tile
from nearpeak.prediction.gemm.gemm_kernel import CLOCK_S, PADDED, quantise_s, slowed_ratio
from nearpeak.prediction.gemm.product_formats import device_figures, tile_sets
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.product_units import formats_of
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.kernel_lowering import Lowering, after_longest_s, ceilings, filling, ps

_REAL = {"complex64": "fp32", "complex128": "fp64"}
"""Formats of the parts of complex numbers: a product of these is four of those."""

_SMALL_LOSS_RATIO = 1e-3
"""Loss of clock, of the whole, below which it turns no choice of tiles by more than simulations are held to."""


class Product(NamedTuple):
    """What a product needs of a device, free of tiles."""

    m: float
    n: float
    k: float
    batch: float
    figures: Any
    """Figures of the device, see `predict._product_formats.device_figures`."""
    tiles: Any
    """Extents along m and along n of the tiles that libraries have kernels for."""
    setting: Setting


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    real = _REAL.get(dict(case.dtypes)["dtype"])
    if real is not None:
        extents = dict(case.axes)
        case = case_of(
            "gemm", m=extents["m"], n=2 * extents["n"], k=2 * extents["k"], batch=extents.get("batch", 1), dtype=real
        )
    coefficients = ceilings(case, target, "gemm")
    product = product_of(case, target, setting)
    if not min(product.m, product.n, product.batch):
        return ()
    before: tuple[Kernel, ...] = ()
    if setting.quantises_input:
        narrow = formats_of(dict(case.dtypes))[0].bits_count < 8
        before = (_quantising(product, target, coefficients, narrow),)
    return (*before, kernel_of(product, target, coefficients, case.op))


def product_of(case: Case, target: Target, setting: Setting) -> Product:
    """Return the product of a case of `gemm` or `scaled_gemm`."""
    named, extents = dict(case.dtypes), dict(case.axes)
    axes = {name: float(extents.get(name, 1)) for name in ("m", "n", "k", "batch")}
    (_, tiles), *_ = tile_sets(target, named["dtype"], np.array([axes["batch"]]))
    return Product(**axes, figures=device_figures(target, named, setting), tiles=tiles, setting=setting)


def kernel_of(product: Product, target: Target, coefficients: Mapping[str, float], name: str) -> Kernel:
    """Return the kernel of the tile and split whose blocks end first."""
    p, hw = np.array(list(coefficients.values())), product.figures
    best, hot = _fastest(product, coefficients)
    ctas = max(1, round(min(best.load, 1.0) * target.sm_count))
    longest = max(best.tensor_s, best.cache_s, best.memory_s, best.chain_s)
    host = coefficients["host_s"] if product.setting.host_timed else 0.0
    slower = slowed_ratio(product.m, product.n, product.k, product.batch, hw, p)
    bandwidth = target.dram.bandwidth_bytes_per_s or 1.0
    moved = (best.read_s / slower * coefficients["dram_ratio"] + best.write_s * coefficients["store_ratio"]) * bandwidth
    multiplied_s = best.tensor_s - best.waves * coefficients["tile_start_s"]
    phases = (
        Phase(fixed_ps=ps(coefficients["launch_s"] + coefficients["grid_ramp_s"] * best.busy + host)),
        Phase(
            fixed_ps=ps(longest),
            pipe_s={"tensor": multiplied_s, "shared": best.cache_s},
            pool_bytes=dict.fromkeys(("dram", "l2"), moved / ctas),
        ),
        Phase(
            fixed_ps=ps(
                after_longest_s(target, best.body_s, longest, dict.fromkeys(("dram", "l2"), moved))
                + best.store_s + best.reduce_s
            )
        ),
        Phase(fixed_ps=ps(hot), sags=True),
    )  # fmt: skip
    return Kernel(name=name, cta_count=ctas, phases=phases, needs=filling(target))


def _fastest(product: Product, coefficients: Mapping[str, float]) -> tuple[BestTile, float]:
    """Return the tile and split that end first, and the loss of clock with them, which may turn the choice."""
    p, extents = np.array(list(coefficients.values())), (product.m, product.n, product.k, product.batch)
    best = best_tile(*extents, product.figures, p, product.tiles)
    hot_s = _hot_s(best, coefficients)
    if hot_s < _SMALL_LOSS_RATIO * best.least_s:
        return best, hot_s
    kinds = [(rows[None], columns[None]) for rows, columns in zip(*product.tiles, strict=True)]
    each = [best, *(best_tile(*extents, product.figures, p, kind) for kind in kinds)]
    return min(((tile, _hot_s(tile, coefficients)) for tile in each), key=lambda pair: pair[0].least_s + pair[1])


def _hot_s(best: BestTile, coefficients: Mapping[str, float]) -> float:
    """Return what is lost as the clock falls under sustained products."""
    warm = best.tensor_s / best.least_s * best.tensor_s / (best.tensor_s + CLOCK_S)
    return best.tensor_s * coefficients["clock_ratio"] * warm


def _quantising(p: Product, target: Target, coefficients: Mapping[str, float], narrow: bool) -> Kernel:
    """Return the kernel that quantises A from bf16 first."""
    start_s = coefficients["quantise_s"]
    body_s = quantise_s(p.m, p.k, p.batch, p.figures, np.array(list(coefficients.values()))) - start_s
    moved = p.batch * p.m * p.k * (2.0 + p.figures[5])
    miss = min(max(moved / (coefficients["residency_ratio"] * float(target.l2.capacity_bytes or 1)) - 0.5, 0.0), 1.0)
    padded = narrow and (p.n % PADDED or p.k % PADDED)
    ctas = max(1, round(min(p.batch * p.m, target.sm_count)))
    phases = (
        Phase(fixed_ps=ps(start_s + (coefficients["pad_s"] if padded else 0.0))),
        Phase(fixed_ps=ps(body_s), pool_bytes={"dram": moved * miss / ctas}),
    )
    return Kernel(name="quantise", cta_count=ctas, phases=phases, needs=filling(target))


LOWERING = Lowering(ops=("gemm", "scaled_gemm"), kernels=_kernels, filling_ratios=(3.0, 2.0, 1.0, 0.25))
