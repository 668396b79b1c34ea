"""Attention: decode kernels that split the keys; prefill kernels whose tiles of queries visit them block by block."""

import math
from collections.abc import Mapping

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._form import Setting
from nearpeak.sim.lowering._lowering import Lowering, ceilings, filling, ps
from nearpeak.sim.lowering._prefill import prefill
from nearpeak.sim.lowering._sequences import SOURCE_BYTES, Sequences, decodes, has_kernel, sequences_of
from nearpeak.sim.work import Kernel, Phase

_BLOCK = 64.0
"""Keys that a tile of queries meets at a time."""
_LANES = 64.0
"""Rows of queries that one thread block of a decode kernel takes."""
_SATURATION = 0.3
"""Share of the multiprocessors that saturates memory: not pinned down by any measurement."""
_OVERLAP = 5.0
"""Power at which blocks and memory overlap in a decode kernel."""
_SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0])
"""Parts into which decode kernels split the keys of a sequence."""


def _kernels(case: Case, target: Target, _setting: Setting) -> tuple[Kernel, ...]:
    shape = sequences_of(case)
    scalars, _ = ceilings(case, target, "attention")
    lower = _decode if decodes(shape, target) else prefill
    return (lower(shape, target, scalars, _unit_flop_per_s(case, target)),)


def _unit_flop_per_s(case: Case, target: Target) -> float:
    dtype = DTYPES[dict(case.dtypes)["dtype"]]
    units = [unit for unit in dtype.matrix_units if unit in target.peaks]
    if not units:
        raise NotModelledError(f"{target.name}: states no rate for products of {dtype.name}")
    return max(target.peaks[unit].flop_per_s for unit in units)


def _decode(s: Sequences, target: Target, p: Mapping[str, float], flop_per_s: float) -> Kernel:
    """Return the kernel of the split of the keys whose blocks end first."""
    sm, rows = target.sm_count, s.q * s.heads / s.kv_heads
    lanes = 8.0
    while lanes < min(rows, _LANES):
        lanes *= 2
    stored, keys = s.stored, min(s.kv, s.window + s.q - 1) if s.window else s.kv
    units, blocks = s.batch * s.kv_heads * math.ceil(rows / _LANES), math.ceil(keys / _BLOCK)
    moved = s.batch * (s.kv_heads * keys * stored * s.kv_bytes
                       + s.heads * s.q * (s.dim * s.element_bytes + s.v_dim * SOURCE_BYTES))  # fmt: skip
    miss = min(max(moved / (p["decode_residency_ratio"] * (target.l2.capacity_bytes or 1)) - 0.5, 0.0), 1.0)
    l2 = p["decode_l2_bytes_per_clock"] * target.clock_hz
    slow = 1.0 if has_kernel(s, target) else p["decode_generic_ratio"]
    lone = p["decode_lone_ratio"] if rows == 1 else 1.0
    start = (p["decode_start_s"] * lone + p["decode_row_s"] * lanes * (s.dim + s.v_dim) / 256) * slow
    product = 2 * _BLOCK * lanes * (s.dim + s.v_dim) * sm / flop_per_s * slow
    block = (p["decode_step_s"] + _BLOCK * stored * s.kv_bytes / l2) * slow + product
    split = _SPLITS[blocks >= _SPLITS]
    deep, load = np.ceil(blocks / split), units * split / sm
    hidden = 1.0 - p["decode_hidden_tail_ratio"]
    waves = np.where(load <= 1, 1.0, load + hidden * (np.ceil(load) - load))
    tiles = waves * (start + deep * block)
    few = 1 / np.minimum(1.0, load / _SATURATION)
    bandwidth = p["decode_dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0)
    memory = moved * (miss * few / bandwidth + 1 / (l2 * sm))
    body = (tiles**_OVERLAP + memory**_OVERLAP) ** (1 / _OVERLAP)
    added = p["combine_s"] + p["split_s"] * split + (split + 1) * s.batch * s.heads * s.q * s.v_dim * 4 / (l2 * sm)
    combine = np.where(split > 1, added, 0.0)
    best = int(np.argmin(body + combine))
    ctas = max(1, round(min(units * split[best], sm)))
    longest = max(tiles[best], memory[best])
    once = moved / (target.dram.bandwidth_bytes_per_s or 1.0)
    start_s = p["decode_launch_s"] + s.batch * p["sequence_s"] + (p["decode_window_s"] if s.window else 0.0)
    short = max(0.0, once - start_s - body[best] - combine[best])
    phases = (
        Phase(fixed_ps=ps(start_s)),
        Phase(
            fixed_ps=ps(longest), pipe_s={"tensor": waves[best] * deep[best] * product},
            pool_bytes={"dram": moved * miss / ctas, "l2": moved / ctas},
        ),
        Phase(fixed_ps=ps(body[best] - longest + combine[best] + short)),
    )  # fmt: skip
    return Kernel(name="decode", cta_count=ctas, phases=phases, needs=filling(target))


LOWERING = Lowering(ops=("attention", "paged_attention", "varlen_attention"), kernels=_kernels)
