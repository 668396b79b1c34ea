"""Modules of Transformers as PyTorch runs them: several kernels, whose times were added up, never fitted.

The profiler of LLMServingSim adds the durations of all kernels that a module starts (record_function_tracer.py): eight
of an RMS norm as Transformers writes it, ten of a rotary embedding, two of a gated activation.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families._calls import Kernels, cast, function, reduced
from benchmarks.accuracy.family import EAGER, OLD, Block, Family, best_rows, kinds_of, lacks, site_numbers, target_name
from nearpeak.prediction.kernel_model import Setting

FILE = "llmservingsim_layers"
_PHI, _EXPERTS = "contains(model, 'Phi')", "(contains(model, 'MoE') or contains(model, 'Mixtral'))"


def _norm(axes: Mapping[str, Any]) -> Kernels:
    """Return the kernels of `LlamaRMSNorm`: in fp32, weighted in the format of the model."""
    rows, hidden = axes["tokens"], axes["hidden"]
    whole = rows * hidden
    return (
        cast("bf16", "fp32", whole),
        function("pow", whole, dtype="fp32"),
        reduced("mean", rows, hidden),
        function("add", rows, count=2, dtype="fp32"),
        function("mul", whole, rows, dtype="fp32"),
        cast("fp32", "bf16", whole),
        function("mul", whole, hidden),
    )  # fmt: skip


def _layer_norm(axes: Mapping[str, Any]) -> Kernels:
    return ((1, "layer_norm", {"dtype": "bf16"}, {"rows": axes["tokens"], "hidden": axes["hidden"]}, {}),)


def _rotary(axes: Mapping[str, Any]) -> Kernels:
    """Return the kernels of `apply_rotary_pos_emb`, for queries and for keys."""
    kernels: list[Any] = []
    for heads in (axes["q"], axes["kv"]):
        table = axes["tokens"] * axes["dim"]
        whole = heads * table
        kernels += [
            function("mul", whole, table, count=2), function("neg", whole // 2), function("add", whole, whole),
            (1, "copy", {"dtype": "bf16"}, {"elements": whole, "read": whole}, {}),
        ]  # fmt: skip
    return kernels


def _activation(axes: Mapping[str, Any]) -> Kernels:
    whole = axes["tokens"] * axes["inner"]
    return function("silu", whole), function("mul", whole, whole)


_NORMS = ("layer_input_layernorm", "layer_post_layernorm", "layer_final_layernorm")
_HIDDEN = ("tokens", "hidden")
MODULES: tuple[tuple[str, str, tuple[str, ...], Any, tuple[str, ...]], ...] = (
    ("RMSNorm", f"not {_PHI}", _HIDDEN, _norm, _NORMS),
    ("LayerNorm", _PHI, _HIDDEN, _layer_norm, _NORMS),
    ("rotary", "true", ("tokens", "q_heads // tp as q", "kv_heads // tp as kv", "head_dim as dim"), _rotary,
     ("layer_rope",)),
    ("activation", f"not {_EXPERTS}", ("tokens", "ffn // tp as inner"), _activation, ("layer_act_fn",)),
)  # fmt: skip
"""Modules: name, SQL of their rows, axes, kernels, and operators of the corpus; rows of experts are not stated."""


def _blocks(folder: Path) -> Iterator[Block]:
    path = folder / f"{FILE}.parquet"
    for module in MODULES:
        for kind in kinds_of(path, "source", "device", "op", known=lambda *one, of=module[4]: one[2] in of):
            yield _block(path, kind, module)


def _block(path: Path, kind: tuple[str, str, str], module: tuple[str, str, tuple[str, ...], Any, Any]) -> Block:
    source, device, op = kind
    name, where, axes, kernels, _ = module
    found = best_rows(path, axes, f"source = ? and device = ? and op = ? and {lacks(OLD | EAGER)} and {where}", kind)
    columns = {axis.rpartition(" ")[2]: found[axis.rpartition(" ")[2]].astype(np.int64) for axis in axes}
    whole = Block(
        source=source, device=target_name(device), kind=f"{name} {op}", op="elementwise", dtypes={"dtype": "bf16"},
        axes=columns, measured_s=found["best"], left_out=found["left_out"],
        sites=site_numbers(*columns.values()), setting=Setting(is_eager=True),
    )  # fmt: skip
    return whole.of_kernels(kernels(columns))


FAMILY = Family(name="modules", form_name="stream", blocks=_blocks, files=(FILE,), allowed=())
