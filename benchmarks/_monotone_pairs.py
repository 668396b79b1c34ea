"""Random pairs of cases of which one contains the other, extent by extent, by family."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

ROUNDING_RATIO = 1e-9
"""Share of a time below which two times are the same."""
_STEPS = (0.0, 0.0, 1e-3, 0.02, 0.3, 1.5)
"""Largest logarithms by which an extent grows, drawn evenly: none, by one, by a little, by several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the pairs of a family are drawn."""

    op: str
    """Operator."""
    devices: tuple[str, ...]
    """Targets on which pairs are predicted."""
    extents: Mapping[str, tuple[int, int]]
    """Least and largest extent of each axis that grows."""
    fixed: Mapping[str, Any]
    """Formats, choices and extents that both cases share."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Axes that are as long as another."""
    multiple: int = 1
    """What extents are a multiple of."""


_PRODUCT = {"m": (1, 16384), "n": (1, 16384), "k": (1, 16384)}
_HEADS = {"heads": 32, "kv_heads": 8, "causal": True, "align": "lower_right", "dtype": "bf16"}
FAMILIES = {
    "gemm": Family(
        op="gemm", devices=("h100_sxm", "l40s", "h200_sxm", "mi300x", "gtx_1080_ti"),
        extents={**_PRODUCT, "batch": (1, 32)}, fixed={"dtype": "bf16"},
    ),
    "gemm_fp32": Family(
        op="gemm", devices=("p4", "t4", "a100_pcie_40gb"), extents={**_PRODUCT, "batch": (1, 32)},
        fixed={"dtype": "fp32"},
    ),
    "fp8_gemm": Family(
        op="scaled_gemm", devices=("h100_sxm", "b200_sxm", "l40s"), extents=_PRODUCT, fixed={"dtype": "fp8_block"},
    ),
    "nvfp4_gemm": Family(op="scaled_gemm", devices=("b200_sxm", "gb300"), extents=_PRODUCT, fixed={"dtype": "nvfp4"}),
    "grouped_gemm": Family(
        op="grouped_gemm", devices=("h100_sxm", "b200_sxm"),
        extents={"m": (1, 65536), "n": (64, 8192), "k": (64, 8192)}, fixed={"groups": 64, "dtype": "bf16"},
    ),
    "prefill": Family(
        op="attention", devices=("h100_sxm", "l40s", "b200_sxm"),
        extents={"batch": (1, 32), "q": (17, 8192), "dim": (32, 256)}, fixed=_HEADS, same={"kv": "q"},
    ),
    "decode": Family(
        op="attention", devices=("h100_sxm", "l40s", "b200_sxm"),
        extents={"batch": (1, 128), "kv": (2, 65536), "dim": (32, 256)}, fixed={**_HEADS, "q": 1},
    ),
    "encoder": Family(
        op="attention", devices=("h100_sxm", "l40s"),
        extents={"batch": (1, 32), "q": (17, 4096), "kv": (17, 4096), "dim": (32, 256)},
        fixed={"heads": 16, "causal": False, "dtype": "bf16"},
    ),
    "conv": Family(
        op="conv", devices=("v100_sxm", "mi100"),
        extents={"batch": (1, 128), "in_channels": (1, 1024), "out_channels": (1, 1024), "h": (7, 224), "w": (7, 224)},
        fixed={"kh": 3, "kw": 3, "ph": 1, "pw": 1, "dtype": "fp32"},
    ),
    "softmax": Family(
        op="softmax", devices=("h100_sxm", "a100_sxm_80gb"), extents={"rows": (1, 65536), "columns": (1, 65536)},
        fixed={"dtype": "bf16"},
    ),
    "rms_norm": Family(
        op="rms_norm", devices=("h100_sxm", "a100_sxm_80gb"), extents={"rows": (1, 65536), "hidden": (1, 65536)},
        fixed={"dtype": "bf16"},
    ),
    "elementwise": Family(
        op="elementwise", devices=("h100_sxm", "p4"), extents={"elements": (1, 2**28)},
        fixed={"function": "gelu", "dtype": "bf16"},
    ),
    "all_reduce": Family(
        op="collective", devices=("h100_sxm", "l40s"), extents={"elements": (1, 2**25)},
        fixed={"kind": "all_reduce", "ranks": 4, "dtype": "bf16"}, multiple=4,
    ),
    "all_gather": Family(
        op="collective", devices=("h100_sxm", "b200_sxm"), extents={"elements": (1, 2**25)},
        fixed={"kind": "all_gather", "ranks": 8, "dtype": "bf16"}, multiple=8,
    ),
}  # fmt: skip
"""Families by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Predictions of pairs of cases, as columns."""

    contained: Mapping[str, Any]
    """Extents of the smaller case of each pair, by axis."""
    container: Mapping[str, Any]
    """Extents of the larger one."""
    ratio: Any
    """Time of the contained case over that of the case that contains it: more than 1 breaks the law."""
    is_beyond: Any
    """Whether the contained case takes longer than the 90 % interval of the other reaches, so that more than the stated
    uncertainty breaks the law.
    """

    @property
    def broken(self) -> Any:
        """Ratios of the pairs that break the law."""
        return self.ratio[self.ratio > 1 + ROUNDING_RATIO]


def pairs_of(family: Family, device: str, count: int, seed: int) -> Pairs:
    """Return the predictions of random pairs of a family on a device."""
    draw = np.random.default_rng(seed)
    pairs: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name, (low, high) in family.extents.items():
        first = np.exp(draw.uniform(np.log(low), np.log(high + 0.999), count)).astype(np.int64)
        grown = np.ceil(first * np.exp(draw.choice(_STEPS, count) * draw.random(count))).astype(np.int64)
        for axes, extent in zip(pairs, (first, np.maximum(first, grown)), strict=True):
            axes[name] = extent * family.multiple
    contained, container = (
        predict_table(
            case_table({"op": family.op, **family.fixed, **axes, **{a: axes[b] for a, b in family.same.items()}}),
            target_of(device),
        )
        for axes in pairs
    )
    return Pairs(
        contained=pairs[0], container=pairs[1], ratio=contained.predicted_s / container.predicted_s,
        is_beyond=contained.predicted_s > container.high_s,
    )  # fmt: skip
