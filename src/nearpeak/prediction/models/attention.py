"""Attention: split-key decode kernels and query-tiled prefill kernels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.attention.attention_coefficients import COEFFICIENTS
from nearpeak.prediction.attention.attention_shapes import COLUMNS, columns_of, device_figures
from nearpeak.prediction.calibration.related_devices import (
    multiplies_in_pairs,
    products_generation,
    runs_kernels_of,
)
from nearpeak.prediction.calibration.source_spread import gradient_spread
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting
from nearpeak.prediction.power.board_power import repower
from nearpeak.prediction.product_units import fastest
from nearpeak.prediction.scalar_or_column import chosen, in_floats, larger, summed

TERMS = (
    "decode_launch", "sequences", "combine", "decode_start", "decode_keys", "decode_tail", "dram", "dram_ceiling", "l2",
    "launch", "tile_start", "tensor", "masked_pairs", "ceiling", "wave_tail", "traffic", "append", "clock",
)  # fmt: skip
"""Parts of a predicted time, in the order of the columns that the kernel writes."""
_ALIKE = {"fp16": "bf16", "fp8_e5m2": "fp8_e4m3"}
_MEASURED = ("bf16", "fp8_e4m3")
_WIDTH = 128.0
"""Width of most heads."""


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats of products and cache whose coefficients may serve, best first."""
    dtype = _ALIKE.get(dtypes["dtype"], dtypes["dtype"])
    stored = dtypes.get("kv_dtype") or dtypes["dtype"]
    stored = _ALIKE.get(stored, stored)
    if dtype not in _MEASURED:
        raise NotModelledError(f"predict: no model for attention in {dtype}; bf16, fp16 and fp8 can be predicted")
    group = dtype if stored == dtype else f"{dtype}_kv_{stored}"
    return tuple(dict.fromkeys((group, dtype, "bf16")))


def _lacks(dtypes: Mapping[str, str], attributes: Mapping[str, str | bool]) -> str:
    """Return the feature that measured kernels lack: another format, a mask as data, or dropout."""
    dtype, mask = _ALIKE.get(dtypes["dtype"], dtypes["dtype"]), attributes.get("mask", "none")
    if dtype not in _MEASURED:
        return dtype
    return "dropout" if attributes.get("dropout") else "" if mask in ("none", "alibi") else f"mask={mask}"


_BACKWARD_KERNELS = 3.0
"""Kernels of the gradients: sums of rows of O * dO, the gradients, dQ from the sums of its parts to its format (Dao
2023, arXiv:2307.08691, algorithm 2, and its public code).
"""
_OTHER_KINDS_SPREAD = 0.25
"""Spread in logarithms, either way, of kinds that corrections were not fitted on, attention to later keys and decode
steps over a latent cache: what makes the intervals of fitted devices cover nine of ten such cases of AIConfigurator
(ai-dynamo 095f58a)."""
_LATENT_PAIRED_SPREAD, _LATENT_SPREAD, _LATENT_NARROW_SPREAD = (0.24, 0.36), (0.45, 0.50), (0.35, 3.2)
"""Faster and slower, in logarithms, for decode steps over a latent cache: on data-centre Blackwell, on boards without
kernels of their own for them, and there over caches of 8 bits. What folds 0 and 1 of AIConfigurator's tables show on
the B200 and the L40S (ai-dynamo 095f58a), whose kernels no coefficient was fitted on.
"""
_BYTE = 8
_LAUNCHES = ("launch", "decode_launch")


def _kernels(cases: CaseColumns) -> tuple[CaseColumns, ...]:
    """Return the forward pass, whose kernels gradients are predicted from."""
    return (cases,) if cases.phase == "forward" else (replace(cases, phase="forward"),)


def _rows(target: Target, cases: CaseColumns, coefficients: Any, _setting: Setting) -> Rows:
    """Return the times of attention or of its gradients, sequences of a batch alike.

    Gradients form five products per pair of query and key, three of them as wide as keys and two as values, where the
    forward pass forms one of each; tiles, exponentials and loads are taken to grow with them, as each product has
    tiles of its own. Kernels reach no larger share of the rate than forward ones (FlashAttention-2: 63 instead of 73 %
    of the A100's rate, arXiv:2307.08691, section 4.1). Nothing is appended to a cache.
    """
    if cases.phase == "forward":
        return _forward(target, cases, coefficients)
    parts = np.stack(_of_gradients(cases, _forward(target, _kernels(cases)[0], coefficients).parts_s.T), 1)
    return Rows(time_s=parts.sum(1), parts_s=parts)


def _row(target: Target, cases: CaseColumns, coefficients: Any, _setting: Setting) -> Rows:
    """Return the time of one case of attention, or of its gradients."""
    from nearpeak.prediction.attention import attention_kernel as kernel

    _refuse_lacking(cases)
    forward = _kernels(cases)[0]
    fill = kernel.case_fill(device_figures(target, cases.dtypes), np.asarray(coefficients, dtype=float))
    *parts_s, time_s = fill(*columns_of(target, forward))
    if forward is cases:
        return Rows(time_s=time_s, parts_s=parts_s)
    parts_s = _of_gradients(cases, parts_s)
    return Rows(time_s=summed(parts_s), parts_s=parts_s)


def _of_gradients(cases: CaseColumns, parts_s: Iterable[Any]) -> list[Any]:
    """Return the parts of gradients from those of the forward pass, each a column, or a number for one case."""
    dim = in_floats(cases.axes["dim"])
    width = in_floats(cases.axes.get("v_dim", dim))
    more = (3 * dim + 2 * width) / larger(dim + width, 1.0)
    factors = {**dict.fromkeys(_LAUNCHES, _BACKWARD_KERNELS), "append": 0.0}
    return [part_s * factors.get(name, more) for name, part_s in zip(TERMS, parts_s, strict=True)]


def _forward(target: Target, cases: CaseColumns, coefficients: Any) -> Rows:
    """Return the times of the forward pass."""
    from nearpeak.prediction.attention import attention_kernel as kernel

    _refuse_lacking(cases)
    inputs = columns_of(target, cases)
    if any(isinstance(column, np.ndarray) for column in inputs):
        columns = np.stack(np.broadcast_arrays(*(np.atleast_1d(column) for column in inputs)), 1)
    else:
        columns = np.array([inputs], dtype=np.float64)
    parts, times = np.empty((len(columns), len(TERMS))), np.empty(len(columns))
    kernel.fill(columns, device_figures(target, cases.dtypes), np.asarray(coefficients, dtype=float), parts, times)
    return Rows(time_s=times, parts_s=parts)


def _refuse_lacking(cases: CaseColumns) -> None:
    if what := _lacks(cases.dtypes, cases.attributes):
        raise NotModelledError(
            f"predict: no model for {cases.op} with {what}; windows and causal masks can be predicted"
        )


def _corrected_by(target: Target, cases: CaseColumns, _setting: Setting) -> Mapping[str, Any]:
    """Return shapes and kernel variants; corrections for wide heads do not apply to latent decoding."""
    known = dict(zip(COLUMNS, columns_of(target, cases), strict=True))
    latent = (known["dim"] != known["v_dim"]) & (known["decodes"] > 0)
    usual = {"dim": _WIDTH, "v_dim": _WIDTH, "stored": 2.0 * _WIDTH}
    return known | {name: chosen(latent, value, known[name]) for name, value in usual.items()}


def _is_corrected(target: Target, cases: CaseColumns) -> Any:
    """Return the cases of the kinds that were fitted: causal prefills, and decode steps over keys and values."""
    if cases.attributes.get("latent"):
        return False
    if cases.op == "paged_attention" or cases.attributes.get("causal"):
        return True
    return columns_of(target, cases)[COLUMNS.index("decodes")] > 0


def _extrapolation(target: Target, cases: CaseColumns) -> tuple[Any, Any] | None:
    """Return the additional spread of gradients, and of the kinds that corrections were not fitted on."""
    spread = gradient_spread(cases)
    known = np.atleast_1d(_is_corrected(target, cases))
    if spread is not None or np.all(known):
        return spread
    faster, slower = _latent_spread(target, cases) if cases.attributes.get("latent") else (_OTHER_KINDS_SPREAD,) * 2
    return np.where(known, 0.0, faster), np.where(known, 0.0, slower)


def _latent_spread(target: Target, cases: CaseColumns) -> tuple[float, float]:
    """Return the additional spread of decode steps over a latent cache, by whether kernels were written for them."""
    if target.architecture == "hopper":
        return _OTHER_KINDS_SPREAD, _OTHER_KINDS_SPREAD
    if multiplies_in_pairs(target):
        return _LATENT_PAIRED_SPREAD
    stored = DTYPES[cases.dtypes.get("kv_dtype") or cases.dtypes["dtype"]]
    return _LATENT_NARROW_SPREAD if stored.bits_count <= _BYTE else _LATENT_SPREAD


def transferred(
    target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]], *, is_related: bool
) -> list[Any]:
    """Return the coefficients of each measured device with the board power of `target`.

    Clocks, launch floors, memory and caches need no transfer: the model reads them. A product takes about the same
    energy on boards whose kernels feed the matrix units in the same way.

    Args:
        is_related: whether the devices run the kernels of `target`.
    """
    values, dtype = [np.array(vector, dtype=float) for _, vector in measured], DTYPES[dtypes["dtype"]]
    for (device, _), vector in zip(measured, values, strict=True):
        if is_related or products_generation(target) == products_generation(device):
            repower(vector, COEFFICIENTS, target, device, lambda board: fastest(board, dtype, "attention"))
    return values


KERNEL_MODEL = KernelModel(
    name="attention",
    ops=("attention", "paged_attention", "varlen_attention"),
    version="attention-4",
    coefficients=COEFFICIENTS,
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
    is_by_format=True,
    grids={
        "attention": {
            "batch": (1, 8, 64),
            "heads": (32,),
            "kv_heads": (4, 32),
            "q": (1, 512, 4096),
            "kv": (4096, 32768),
            "dim": (64, 128),
            "causal": (True,),
            "align": ("lower_right",),
        },
    },
    rows=_rows,
    row=_row,
    lacks=_lacks,
    correction_columns=_corrected_by,
    kernels=_kernels,
    phases=("forward", "backward"),
    corrected=_is_corrected,
    extrapolation=_extrapolation,
    extrapolation_note=(
        "attention to later keys and over a latent cache: by coefficients of their own without corrections; "
        "gradients: predicted from the forward pass, which alone was measured, with the products that they form; the "
        "interval is that of other software"
    ),
    related=runs_kernels_of,
    size=lambda target, _dtypes: products_generation(target),
    transfer=transferred,
)
