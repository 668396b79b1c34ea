"""Attention: split-key decode kernels, query-tiled prefill kernels and their gradients."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import case as case_of
from nearpeak.prediction.attention.attention_kernel import BEST_COUNT, decode_times, prefill_times
from nearpeak.prediction.attention.attention_shapes import columns_of, device_figures
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.simulation.engine.device_work import Kernel, Node, Phase
from nearpeak.simulation.kernel_lowering import Lowering, ceilings, filling, ps

_BACKWARD_PRODUCTS = 5 / 2
"""Products of the gradients against those of the result: scores again, and one for each of dP, dQ, dK, dV.

Source: Dao 2023, arXiv:2307.08691, section 3.1.2."""
_SUM_BYTES = 4
"""Bytes of an element of dQ while tiles of keys add to it."""
_RANDOM_FLOP = 25
"""Vector instructions of a random number: ten rounds of two wide products and four exclusive ors give four numbers.

Source: Salmon et al. 2011, doi:10.1145/2063384.2063405, Philox4x32-10."""


class _Sequences(NamedTuple):
    """What the compiled kernel reads of a case, in its order."""

    batch: float
    heads: float
    kv_heads: float
    q: float
    kv: float
    dim: float
    v_dim: float
    stored: float
    window: float
    causal: float
    packs: float
    generic: float
    decodes: float
    most_rows: float
    apart: float


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Node, ...]:
    columns = case_columns(case)
    s = _Sequences(*(float(np.max(column)) for column in columns_of(target, columns)))
    if not min(s.batch, s.heads, s.q, s.kv):
        return ()
    try:
        coefficients = ceilings(case, target, "attention")
    except NotModelledError:
        return _unfused(case, s, target, setting)
    figures = device_figures(target, columns.dtypes)
    if case.phase == "backward":
        return _gradients(case, s, target, coefficients, figures)
    kernel = (
        _decode(s, target, coefficients, figures)
        if s.decodes
        else _prefill(s, target, coefficients, figures, "prefill")
    )
    return (_masked(kernel, case, s, target),)


def _unfused(case: Case, s: _Sequences, target: Target, setting: Setting) -> tuple[Node, ...]:
    """Return scores, their softmax and its product with the values as separate kernels.

    That is how formats without a kernel run; gradients form two products for each of the two.
    """
    from nearpeak.simulation.lowering import kernels_of

    dtype, batch, q, kv = dict(case.dtypes)["dtype"], int(s.batch * s.heads), int(s.q), int(s.kv)
    scores = case_of("gemm", m=q, n=kv, k=int(s.dim), batch=batch, dtype=dtype)
    values = case_of("gemm", m=q, n=int(s.v_dim), k=kv, batch=batch, dtype=dtype)
    weights = case_of("softmax", case.phase, rows=batch * q, columns=kv, dtype=dtype)
    order = (scores, weights, values) if case.phase == "forward" else (scores, values, values, weights, scores, scores)
    return tuple(kernel for step in order for kernel in kernels_of(step, target, setting))


def _decode(s: _Sequences, target: Target, coefficients: Mapping[str, float], hw: Any) -> Kernel:
    """Return the kernel of the split of the keys whose blocks end first."""
    p, best = np.array(list(coefficients.values())), np.zeros(BEST_COUNT)
    keys = min(s.kv, s.window + s.q - 1) if s.window else s.kv
    decode_times(tuple(s[:8]), keys, float(s.window > 0), s.generic, s.apart, hw, p, best)
    tiles, memory, body, combine = (float(value) for value in best[:4])
    ctas = max(1, round(min(float(best[12]), 1.0) * target.sm_count))
    start_s, moved, miss = float(best[9] + best[10]), float(best[14]), float(best[15])
    short = max(0.0, moved / hw[2] - start_s - body - combine)
    phases = (
        Phase(fixed_ps=ps(start_s)),
        Phase(
            fixed_ps=ps(max(tiles, memory)), pipe_s={"tensor": float(best[13])},
            pool_bytes={"dram": moved * miss / ctas, "l2": moved / ctas},
        ),
        Phase(fixed_ps=ps(body - max(tiles, memory) + combine + short)),
    )  # fmt: skip
    return Kernel(name="decode", cta_count=ctas, phases=phases, needs=filling(target))


def _prefill(s: _Sequences, target: Target, coefficients: Mapping[str, float], hw: Any, name: str) -> Kernel:
    """Return the kernel of the tile whose blocks end first, with the appending of new keys and values."""
    p, best = np.array(list(coefficients.values())), np.zeros(BEST_COUNT)
    prefill_times(tuple(s[:8]), (s.window, s.causal), s.packs, s.generic, s.most_rows, hw, p, best)
    busy, memory, body, hot = (float(value) for value in best[:4])
    ctas = max(1, round(min(float(best[12]), 1.0) * target.sm_count))
    append_s, start_s, moved, miss = (float(best[place]) for place in (9, 10, 14, 15))
    short = max(0.0, moved / hw[2] - start_s - body - append_s - hot)
    phases = (
        Phase(fixed_ps=ps(start_s)),
        Phase(
            fixed_ps=ps(max(busy, memory)), pipe_s={"tensor": float(best[13]), "special": float(best[16])},
            pool_bytes={"dram": moved * miss / ctas, "l2": moved / ctas},
        ),
        Phase(fixed_ps=ps(body - max(busy, memory) + append_s + short)),
        Phase(fixed_ps=ps(hot), sags=True),
    )  # fmt: skip
    return Kernel(name=name, cta_count=ctas, phases=phases, needs=filling(target))


def _masked(kernel: Kernel, case: Case, s: _Sequences, target: Target) -> Kernel:
    """Return a kernel that reads a mask, visits live pairs alone, or draws random numbers on its way."""
    attributes, axes = dict(case.attributes), dict(case.axes)
    pairs = s.batch * s.heads * s.q * s.kv
    mask, phases = str(attributes.get("mask", "none")), list(kernel.phases)
    place = next(index for index, phase in enumerate(phases) if phase.pool_bytes)
    main = phases[place]
    fixed_s, pools, pipes = main.fixed_ps / 1e12, dict(main.pool_bytes), dict(main.pipe_s)
    if mask == "known":
        live = min(axes.get("live_pairs", pairs) / pairs, 1.0)
        fixed_s, pipes = fixed_s * live, {name: value * live for name, value in pipes.items()}
    if mask in ("bool", "float"):
        each = 1 if mask == "bool" else DTYPES[dict(case.dtypes)["dtype"]].bits_count / 8
        stored, seen = (axes.get("mask_elements") or s.q * s.kv) * each, pairs * each
        pools = {"dram": pools["dram"] + stored / kernel.cta_count, "l2": pools["l2"] + seen / kernel.cta_count}
    if attributes.get("dropout"):
        drawn = pairs * _RANDOM_FLOP / vector_rate(target, "fp32")[1] * target.sm_count / kernel.cta_count
        pipes["vector"] = drawn
    phases[place] = Phase(fixed_ps=ps(fixed_s), pipe_s=pipes, pool_bytes=pools)
    return Kernel(name=kernel.name, cta_count=kernel.cta_count, phases=tuple(phases), needs=kernel.needs)


def _gradients(
    case: Case, s: _Sequences, target: Target, coefficients: Mapping[str, float], hw: Any
) -> tuple[Kernel, ...]:  # fmt: skip
    """Return sums over rows, the walk of tiles with five products in place of two, and dQ in its own format.

    Tiles of keys add to dQ in cache, in fp32; the walk is that of a prefill whose keys cost as much more as there are
    products: gradients reach the rate of results (.69 and .71 of the peak, public SimuMax system file of B200).
    """
    slower = hw.copy()
    slower[[0, 5]] /= _BACKWARD_PRODUCTS
    none = dict(coefficients) | {
        "append_ratio": 0.0, "l2_bytes_per_clock": coefficients["l2_bytes_per_clock"] / _BACKWARD_PRODUCTS,
    }  # fmt: skip
    walk = _masked(_prefill(s, target, none, slower, "gradients"), case, s, target)
    queries, each = s.batch * s.heads * s.q, hw[7]
    added = queries * s.dim * _SUM_BYTES * max(1.0, s.kv / 128)
    place = next(index for index, phase in enumerate(walk.phases) if phase.pool_bytes)
    phases = list(walk.phases)
    pools = dict(phases[place].pool_bytes)
    pools["l2"] += 2 * added / walk.cta_count
    pipes = dict(phases[place].pipe_s)
    pipes["special"] /= _BACKWARD_PRODUCTS  # exponentials are formed once
    phases[place] = Phase(fixed_ps=phases[place].fixed_ps, pipe_s=pipes, pool_bytes=pools)
    walk = Kernel(name=walk.name, cta_count=walk.cta_count, phases=tuple(phases), needs=walk.needs)
    rows = 2 * queries * s.v_dim * each + queries * _SUM_BYTES
    return (
        _streamed("row sums", rows, target, coefficients), walk,
        _streamed("dq", queries * s.dim * (_SUM_BYTES + each), target, coefficients),
    )  # fmt: skip


def _streamed(name: str, moved: float, target: Target, coefficients: Mapping[str, float]) -> Kernel:
    """Return a kernel that passes bytes through memory."""
    time_s = moved / (coefficients["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0))
    phase = Phase(fixed_ps=ps(time_s), pool_bytes={"dram": moved / target.sm_count})
    return Kernel(name=name, cta_count=target.sm_count, phases=(phase,), needs=filling(target))


LOWERING = Lowering(
    ops=("attention", "paged_attention", "varlen_attention"),
    kernels=_kernels,
    phases=("forward", "backward"),
    filling_ratios=(3.0, 2.0, 1.0, 0.3),
)
