"""Grouped products: tiles of unequal groups; weight gradients have tiles of unequal depth."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import case as case_of
from nearpeak.ops.shared.expert_load import counts_of
from nearpeak.prediction.grouped_gemm.grouped_gemm_kernel import (
    BEST_COUNT,
    CLOCK_S,
    OUT_BYTES,
    foreign_rows,
    group_rows,
    tile_times,
)
from nearpeak.prediction.grouped_gemm.grouped_shapes import device_figures, exponent_of, touched_of
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.greedy_slots import makespan_ps
from nearpeak.simulation.kernel_lowering import Lowering, after_longest_s, ceilings, filling, pooled_s, ps
from nearpeak.simulation.lowering.gemm import kernel_of, product_of
from nearpeak.simulation.machine_units import PS_PER_S

_MOST_GROUPS = 512
"""Groups beyond which one load represents several."""
_DEEP_ROWS, _DEEP_COLUMNS = (64, 128, 256), (64, 128, 256)
"""Tiles of products whose depth is split over groups: matrices of weights, never a few rows."""


class _Grouped(NamedTuple):
    """Grouped products of one case on one device."""

    m: float
    n: float
    k: float
    loads: Any
    """Rows of each group that has any, or at quantiles of them."""
    touched: float
    """Groups with rows."""
    groups: float
    figures: Any
    p: Mapping[str, float]
    foreign: float = 0.0
    """Rows of other devices' experts that are multiplied nevertheless."""


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    try:
        coefficients = ceilings(case, target, "grouped_gemm")
        figures = device_figures(target, dict(case.dtypes)["dtype"], unpacked=setting.unpacks_weights)
    except NotModelledError:
        return _equal(case, target, setting)
    g = _grouped(case, setting, figures, coefficients)
    by_rows = dict(case.attributes).get("split", "m") == "m"
    if case.phase == "backward":
        return _gradients(g, target, by_rows=by_rows)
    if not by_rows:
        return _deep(g, target, "grouped product")
    if setting.expert_matrices_count > 1:
        return _layer(case, g, target, setting)
    hw = g.figures
    once_s = float((g.m * g.k * hw[5] + g.touched * g.n * g.k * hw[6] + g.m * g.n * OUT_BYTES) / hw[2])
    return _tiles(g, target, "grouped product", _start_s(g), short_s=once_s)


def _gradients(g: _Grouped, target: Target, *, by_rows: bool) -> tuple[Kernel, ...]:
    """Return the products of both gradients: each splits the rows, or the depth, that the other sums over."""
    if by_rows:
        return (
            *_tiles(g._replace(n=g.k, k=g.n), target, "grad a", _start_s(g)),
            *_deep(g._replace(m=g.k), target, "grad b"),
        )  # fmt: skip
    return (
        *_tiles(g._replace(m=g.k, n=g.m, k=g.n), target, "grad a", _start_s(g)),
        *_tiles(g._replace(m=g.k, k=g.m), target, "grad b", _start_s(g)),
    )  # fmt: skip


def _equal(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    """Return products as batches of equal ones, in formats that no grouped kernel was measured in."""
    axes, dtype = dict(case.axes), dict(case.dtypes)["dtype"]
    m, n, k = (axes[name] for name in ("m", "n", "k"))
    if dict(case.attributes).get("split", "m") == "m":
        sizes = [np.array([float(axes[name])]) for name in ("m", "groups")]
        groups = max(int(touched_of(case_columns(case), sizes[0], sizes[1])[0]), 1)
        m = max(-(-m // groups), 1)
    else:
        groups = max(axes["groups"], 1)
        k = max(-(-k // groups), 1)
    extents = {"y": (m, n, k)} if case.phase == "forward" else {"grad a": (m, k, n), "grad b": (k, n, m)}
    kernels = []
    for name, (rows, columns, depth) in extents.items():
        alike = case_of("gemm", dtype=dtype, m=rows, n=columns, k=depth, batch=groups)
        coefficients = ceilings(alike, target, "gemm")
        kernels.append(kernel_of(product_of(alike, target, setting), target, coefficients, f"{case.op} {name}"))
    return tuple(kernels)


def _grouped(case: Case, setting: Setting, figures: Any, coefficients: Mapping[str, float]) -> _Grouped:
    """Return extents with the rows of groups: those drawn or stated, or spread as the setting says."""
    axes, load = dict(case.axes), str(dict(case.attributes).get("load", ""))
    m, n, k, groups = (float(axes[name]) for name in ("m", "n", "k", "groups"))
    spread = m if dict(case.attributes).get("split", "m") == "m" else k
    if load and not setting.load_exponent_ratio:
        counts = np.array([count for count in counts_of(load, int(spread), int(groups)) if count], dtype=np.float64)
        return _Grouped(m, n, k, counts, float(len(counts)), groups, figures, coefficients)
    stated = bool(setting.load_exponent_ratio)
    drawn = touched_of(case_columns(case), np.array([spread]), np.array([groups]), stated=stated)
    touched = float(np.atleast_1d(drawn)[0])
    if spread != m:  # a split sum has every group
        touched = min(groups, spread)
    loads = np.empty(int(min(max(touched, 1.0), _MOST_GROUPS)))
    group_rows(spread, touched, setting.load_exponent_ratio or exponent_of(load), loads)
    return _Grouped(m, n, k, loads, touched, groups, figures, coefficients)


def _layer(case: Case, g: _Grouped, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    """Return the kernels of a layer of experts: routing, products, activation between them."""
    p, matrices = g.p, float(setting.expert_matrices_count)
    inner, groups = g.n / matrices, float(dict(case.axes)["groups"])
    tokens = float(np.max(setting.layer_tokens_count)) or g.m
    routing = Phase(fixed_ps=ps(p["routing_s"] + p["group_s"] * groups + p["token_s"] * tokens))
    everywhere = max(float(np.max(setting.layer_rows_count)), g.m)
    g = g._replace(foreign=p["foreign_ratio"] * foreign_rows(g.m, tokens, everywhere))
    rows = g.m + g.foreign + p["foreign_pass_ratio"] * (everywhere - g.m)
    moved = (2.0 * min(tokens, g.m) * g.k + rows * (2.0 * g.k + matrices * inner)) * OUT_BYTES
    passes = _passes(g, moved, target)
    up, down = g._replace(n=g.n - inner), g._replace(n=g.k, k=inner)
    return (
        Kernel(name="routing", cta_count=1, phases=(routing,), needs=filling(target)),
        *passes, *_tiles(up, target, "up", p["launch_s"]), *_tiles(down, target, "down", 0.0),
    )  # fmt: skip


def _passes(g: _Grouped, moved: float, target: Target) -> tuple[Kernel, ...]:
    """Return the kernel of gathering, activating and scattering rows; none where products do it on their way."""
    p, hw = g.p, g.figures
    miss = min(max(moved / (p["residency_ratio"] * hw[3]) - 0.5, 0.0), 1.0)
    time_s = p["pass_count"] * moved * (miss / (p["dram_ratio"] * hw[2]) + 1.0 / (_l2(g) * hw[1]))
    if time_s <= 0.0:
        return ()
    each = p["pass_count"] * moved / target.sm_count
    phase = Phase(fixed_ps=ps(time_s), pool_bytes={"dram": each * miss, "l2": each})
    return (Kernel(name="passes", cta_count=target.sm_count, phases=(phase,), needs=filling(target)),)


def _l2(g: _Grouped) -> float:
    """Return the bytes per second that one multiprocessor gets from the cache."""
    return float(g.p["l2_bytes_per_clock"] * g.figures[4])


def _start_s(g: _Grouped) -> float:
    """Return the time until tiles start: launching, and scheduling the groups."""
    return g.p["launch_s"] + g.p["group_s"] * g.groups


def _tiles(g: _Grouped, target: Target, name: str, start_s: float, *, short_s: float = 0.0) -> tuple[Kernel, ...]:
    """Return the launch and the tiles of all groups, which take multiprocessors as these fall free.

    It takes no less than `short_s` in all.
    """
    best, p = np.zeros(BEST_COUNT), g.p
    tile_times(g.m, g.n, g.k, g.touched, g.foreign, g.loads, g.figures, np.array(list(p.values())), best)
    tensor, cache, memory, chain = (float(value) for value in best[1:5])
    load, sms = float(best[12]), target.sm_count
    waves, tiles = max(1.0, math.ceil(load - 1e-9)), max(1, round(load * sms))
    body, longest = float(best[0]) ** 0.25, max(tensor, cache, memory, chain)
    hot = tensor * p["clock_ratio"] * tensor / (tensor + CLOCK_S)
    moved = float(best[8]) * g.figures[2]
    if pooled_s(target, {"dram": moved}) * waves * min(tiles, sms) > longest * tiles:
        # full waves would draw more than memory gives, and the last one leave it idle: blocks stay, and take tiles
        waves, tiles = 1.0, min(tiles, sms)
    rest = after_longest_s(target, body, longest, {"dram": moved})
    rest += max(0.0, short_s - start_s - body - hot)
    phases = (
        Phase(
            fixed_ps=ps(longest / waves), pipe_s={"tensor": float(best[9]) / waves},
            pool_bytes={"dram": moved / tiles},
        ),
        Phase(fixed_ps=ps((rest + float(best[14])) / waves)),
        Phase(fixed_ps=ps(hot / waves), sags=True),
    )  # fmt: skip
    launch = Kernel(name=f"{name} launch", cta_count=1, phases=(Phase(fixed_ps=ps(start_s)),), needs=filling(target))
    body_of = Kernel(name=name, cta_count=tiles, phases=phases, needs=filling(target))
    return (launch, body_of) if start_s else (body_of,)


def _deep(g: _Grouped, target: Target, name: str) -> tuple[Kernel, ...]:
    """Return products whose depth is split over groups: blocks stay and take tiles of unequal depth in order."""
    sms, p, hw = target.sm_count, g.p, g.figures
    busy, tiles = _first_done(g, sms)
    moved = g.loads.sum() * (g.m + g.n) * hw[5] + g.touched * g.m * g.n * OUT_BYTES
    miss = min(max(moved / (p["residency_ratio"] * hw[3]) - 0.5, 0.0), 1.0)
    memory = moved * miss / (p["dram_ratio"] * hw[2])
    ctas = max(1, min(tiles, sms))
    tensor_s = 2.0 * g.m * g.n * g.loads.sum() / (p["tensor_ratio"] * hw[0]) * sms / ctas
    phases = (
        Phase(fixed_ps=ps(_start_s(g))),
        Phase(
            fixed_ps=ps(max(busy, memory)), pipe_s={"tensor": min(tensor_s, busy)},
            pool_bytes={"dram": moved * miss / ctas},
        ),
        Phase(fixed_ps=ps((busy**4 + memory**4) ** 0.25 - max(busy, memory))),
    )  # fmt: skip
    return (Kernel(name=name, cta_count=ctas, phases=phases, needs=filling(target)),)


def _first_done(g: _Grouped, sms: int) -> tuple[float, int]:
    """Return when the tiles that are done first are done, and how many they are: never later on more multiprocessors.

    What a size of tiles takes at least, were they spread evenly, tells which sizes need not be played through.
    """
    sizes = (_deep_tiles(g, rows, columns) for rows in _DEEP_ROWS for columns in _DEEP_COLUMNS)
    by_least = sorted(((max(t.sum() * each / sms, t.max()), t, each) for t, each in sizes), key=lambda one: one[0])
    busy, count = math.inf, 0
    for least_s, times, each in by_least:
        if least_s >= busy:
            break
        every = np.repeat(np.ceil(times * PS_PER_S), each)
        if (end_s := makespan_ps(every, sms) / PS_PER_S) < busy:
            busy, count = end_s, len(every)
    return busy, count


def _deep_tiles(g: _Grouped, rows: int, columns: int) -> tuple[Any, int]:
    """Return the time of one tile of each group, and how many tiles a group has."""
    p, hw = g.p, g.figures
    area_s = 2.0 * rows * columns * hw[1] / (p["tensor_ratio"] * hw[0])
    edge_s = (rows + columns) * hw[5] / _l2(g)
    depth = np.ceil(g.loads / hw[7]) * hw[7]
    tensor, cache, chain = depth * area_s + p["tile_start_s"], depth * edge_s, depth / hw[7] * p["step_s"]
    times = (tensor**4 + cache**4 + chain**4) ** 0.25
    return times, int(math.ceil(g.m / rows) * math.ceil(g.n / columns) * max(1.0, g.touched / len(g.loads)))


LOWERING = Lowering(
    ops=("grouped_gemm",), kernels=_kernels, phases=("forward", "backward"), filling_ratios=(2.0, 1.0, 0.6)
)
