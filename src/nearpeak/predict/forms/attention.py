"""Attention: decode kernels that split the keys, and prefill kernels that tile the queries."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._attention_shapes import columns_of, device_figures
from nearpeak.predict._form import CaseColumns, Form, Rows, Scalar, Setting
from nearpeak.predict._kernel_kin import runs_kernels_of

_DECODE = (
    Scalar(
        name="decode_launch_s", low_value=0.5e-6, high_value=60e-6, usual_value=7e-6,
        text="start and end of the kernels of a decode step", pinned_by="few sequences with few keys",
    ),
    Scalar(
        name="decode_dram_ratio", low_value=0.3, high_value=1.0, usual_value=0.9,
        text="reached share of the memory rate", pinned_by="keys and values beyond the cache",
    ),
    Scalar(
        name="decode_l2_bytes_per_clock", low_value=6, high_value=300, usual_value=80,
        text="cache bandwidth per multiprocessor", pinned_by="keys and values inside the cache",
    ),
    Scalar(
        name="decode_residency_ratio", low_value=0.05, high_value=3.0, usual_value=0.6,
        text="share of the cache that stays resident", pinned_by="keys and values around the size of the cache",
    ),
    Scalar(
        name="decode_hidden_tail_ratio", low_value=0.0, high_value=0.97, usual_value=0.3,
        text="share of the last partial wave that is hidden", pinned_by="thread blocks just above whole waves",
    ),
    Scalar(
        name="decode_start_s", low_value=0.0, high_value=10e-6, usual_value=1.2e-6,
        text="time that a thread block takes whatever its keys", pinned_by="many sequences with few keys",
    ),
    Scalar(
        name="decode_row_s", low_value=0.0, high_value=0.3e-6, usual_value=0.01e-6,
        text="more of it per query row of width 128", pinned_by="many query heads per key head, few keys",
    ),
    Scalar(
        name="decode_step_s", low_value=0.0, high_value=2e-6, usual_value=0.1e-6,
        text="latency of one block of 64 keys", pinned_by="few sequences with many keys",
    ),
    Scalar(
        name="decode_lone_ratio", low_value=0.1, high_value=1.2, usual_value=0.9,
        text="start of a lone query row, which needs no matrix units", pinned_by="as many key heads as query heads",
    ),
    Scalar(
        name="combine_s", low_value=0.0, high_value=10e-6, usual_value=2e-6,
        text="start and end of adding up split keys", pinned_by="few sequences, keys just enough to split",
    ),
    Scalar(
        name="split_s", low_value=0.0, high_value=0.3e-6, usual_value=0.02e-6,
        text="adding up one more part", pinned_by="one sequence with many keys",
    ),
    Scalar(
        name="sequence_s", low_value=0.0, high_value=60e-9, usual_value=1e-9,
        text="looking up the pages and the length of one sequence", pinned_by="one key head, 1024 sequences and more",
    ),
    Scalar(
        name="decode_window_s", low_value=0.0, high_value=8e-6, usual_value=0.2e-6,
        text="more to start where a window limits the keys", pinned_by="few sequences with a window",
    ),
    Scalar(
        name="decode_generic_ratio", low_value=1.0, high_value=6.0, usual_value=1.3,
        text="cost of widths without a kernel of their own", pinned_by="heads of such widths",
    ),
)  # fmt: skip
_PREFILL = (
    Scalar(
        name="launch_s", low_value=0.5e-6, high_value=60e-6, usual_value=8e-6,
        text="start and end of the kernels of a prefill", pinned_by="few short sequences",
    ),
    Scalar(
        name="dram_ratio", low_value=0.3, high_value=1.0, usual_value=0.9,
        text="reached share of the memory rate", pinned_by="many short sequences",
    ),
    Scalar(
        name="l2_bytes_per_clock", low_value=6, high_value=300, usual_value=50,
        text="cache bandwidth per multiprocessor", pinned_by="short windows, keys in the cache",
    ),
    Scalar(
        name="residency_ratio", low_value=0.05, high_value=3.0, usual_value=0.4,
        text="share of the cache that stays resident", pinned_by="operands around the size of the cache",
    ),
    Scalar(
        name="hidden_tail_ratio", low_value=0.0, high_value=0.97, usual_value=0.5,
        text="share of the last partial wave that is hidden", pinned_by="tiles just above whole waves",
    ),
    Scalar(
        name="start_s", low_value=0.0, high_value=12e-6, usual_value=2e-6,
        text="filling and draining one tile of queries", pinned_by="many sequences of 16 to 64 tokens",
    ),
    Scalar(
        name="tensor_ratio", low_value=0.2, high_value=1.1, usual_value=0.75,
        text="reached share of the product rate", pinned_by="long sequences with heads of width 256",
    ),
    Scalar(
        name="special_ratio", low_value=0.05, high_value=2.0, usual_value=0.7,
        text="reached share of the rate of the special-function units, above 1 where polynomials help",
        pinned_by="long sequences with heads of width 64",
    ),
    Scalar(
        name="narrow_start_ratio", low_value=0.4, high_value=3.0, usual_value=1.0,
        text="start of a tile of width 64 against width 128", pinned_by="many short sequences of width 64",
    ),
    Scalar(
        name="wide_ratio", low_value=0.4, high_value=2.5, usual_value=1.0,
        text="cost of a key at width 256 against what its work says", pinned_by="long sequences of width 256",
    ),
    Scalar(
        name="masked_ratio", low_value=0.0, high_value=6.0, usual_value=0.5,
        text="more blocks per tile at the far end of a window, masked element by element", pinned_by="windows of 128",
    ),
    Scalar(
        name="window_s", low_value=0.0, high_value=8e-6, usual_value=0.2e-6,
        text="more to start where a window limits the keys", pinned_by="few short sequences with a window",
    ),
    Scalar(
        name="append_ratio", low_value=0.0, high_value=6.0, usual_value=1.0,
        text="share of reading new keys and values and appending them to the cache that nothing hides",
        pinned_by="as many key heads as query heads, short windows",
    ),
    Scalar(
        name="clock_ratio", low_value=0.0, high_value=1.0, usual_value=0.05,
        text="loss of clock under sustained products", pinned_by="one shape from 50 us to 20 ms",
    ),
    Scalar(
        name="generic_ratio", low_value=1.0, high_value=6.0, usual_value=1.3,
        text="cost of widths without a kernel of their own", pinned_by="heads of such widths",
    ),
    Scalar(
        name="uneven_ratio", low_value=0.4, high_value=4.0, usual_value=1.0,
        text="cost of a key where values are narrower than keys, against what its work says",
        pinned_by="long sequences of latent attention",
    ),
    Scalar(
        name="uneven_start_ratio", low_value=0.4, high_value=4.0, usual_value=1.0,
        text="start of a tile where values are narrower than keys",
        pinned_by="many short sequences of latent attention",
    ),
    Scalar(
        name="uneven_launch_s", low_value=0.0, high_value=20e-6, usual_value=1e-6,
        text="more to start where values are narrower than keys", pinned_by="few short sequences of latent attention",
    ),
    Scalar(
        name="generic_reach_ratio", low_value=0.0, high_value=1.0, usual_value=0.3,
        text="share of the keys outside a window that generic kernels visit all the same",
        pinned_by="windows with heads of such widths",
    ),
    Scalar(
        name="append_row_count", low_value=0.0, high_value=800.0, usual_value=100.0,
        text="elements that finding the place of a new key and value costs as much as",
        pinned_by="as many key heads as query heads, widths of 64 against 256",
    ),
)  # fmt: skip
SCALARS = _DECODE + _PREFILL
TERMS = (
    "decode_launch", "sequences", "combine", "decode_start", "decode_keys", "decode_tail", "dram", "dram_ceiling", "l2",
    "launch", "tile_start", "tensor", "masked_pairs", "ceiling", "wave_tail", "traffic", "append", "clock",
)  # fmt: skip
"""Parts of a predicted time, in the order of the columns that the kernel writes."""
_ALIKE = {"fp16": "bf16", "fp8_e5m2": "fp8_e4m3"}


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats of products and cache whose scalars may serve, best first."""
    dtype = _ALIKE.get(dtypes["dtype"], dtypes["dtype"])
    stored = dtypes.get("kv_dtype") or dtypes["dtype"]
    stored = _ALIKE.get(stored, stored)
    if dtype not in ("bf16", "fp8_e4m3"):
        raise NotModelledError(f"predict: no form for attention in {dtype}; bf16, fp16 and fp8 can be predicted")
    own = dtype if stored == dtype else f"{dtype}_kv_{stored}"
    return tuple(dict.fromkeys((own, dtype, "bf16")))


def _rows(target: Target, cases: CaseColumns, scalars: Any, _setting: Setting) -> Rows:
    """Return the times of attention, sequences of a batch alike."""
    from nearpeak.predict import _attention_kernel as kernel

    mask = cases.attributes.get("mask", "none")
    if mask not in ("none", "alibi") or cases.attributes.get("dropout"):
        what = "dropout" if cases.attributes.get("dropout") else f"mask={mask}"
        raise NotModelledError(
            f"predict: no form for {cases.op} with {what}; windows and causal masks can be predicted"
        )
    columns = np.stack(np.broadcast_arrays(*(np.atleast_1d(column) for column in columns_of(target, cases))))
    parts, times = np.empty((columns.shape[1], len(TERMS))), np.empty(columns.shape[1])
    kernel.fill(columns, device_figures(target, cases.dtypes), np.asarray(scalars, dtype=float), parts, times)
    return Rows(time_s=times, parts_s=parts)


FORM = Form(
    name="attention",
    ops=("attention", "paged_attention", "varlen_attention"),
    version="attention-1",
    scalars=SCALARS,
    terms=TERMS,
    regimes={
        **dict.fromkeys(("decode_launch", "sequences", "combine"), "decode_launch"),
        **dict.fromkeys(("decode_start", "decode_keys", "decode_tail"), "decode_blocks"),
        **dict.fromkeys(("dram", "dram_ceiling", "l2"), "decode_memory"),
        **dict.fromkeys(("launch", "append", "traffic"), "launch"),
        **dict.fromkeys(("tile_start", "wave_tail", "masked_pairs"), "tiles"),
        **dict.fromkeys(("tensor", "ceiling", "clock"), "tensor"),
    },
    groups=_groups,
    rows=_rows,
    kin=runs_kernels_of,
)
