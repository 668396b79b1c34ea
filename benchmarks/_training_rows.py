"""Rows of measured training steps as plans: shape, plan, cluster and software stack, or the reason why not."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NearpeakError
from nearpeak.frontends.huggingface.transformer_models import shape_from_extents, shape_of

Row = Mapping[str, Any]
_GPUS = {"v100_sxm2_32gb": "v100_sxm_32gb", "v100_sxm2_16gb": "v100_sxm"}
_NODE = {"a100_sxm_80gb": "hgx_a100", "a100_sxm_40gb": "hgx_a100", "h100_sxm": "hgx_h100", "h200_sxm": "hgx_h200",
         "b200_sxm": "hgx_b200", "b300_sxm": "hgx_b300", "gb200": "nvl72_gb200", "gb300": "nvl72_gb300",
         "v100_sxm_32gb": "dgx1_v100", "v100_sxm": "dgx1_v100", "mi300x": "mi300x_oam", "mi325x": "mi325x_oam",
         "h800_sxm": "hgx_h800", "h20": "hgx_h20"}  # fmt: skip
_NETWORK = {
    "vtrain": "ib_hdr:4", "llm-foundry": "roce400", "megatron-bridge": "ib_ndr", "bigscience": "opa100:4",
    "korthikanti2022": "ib_hdr", "mlperf_training_5.0": "ib_ndr", "torchtitan": "ib_ndr", "simumax": "ib_ndr",
    "deeplearningexamples": "ib_edr:4",
}  # fmt: skip
"""Network between nodes that the source states: vTrain 800 Gb/s of HDR per node (config/validation); llm-foundry's A100
1,600 Gb/s per node over RoCE, its H100 not stated; DGX H100 and B200 one NDR port per GPU; Jean Zay four Omni-Path
links; Selene one HDR port per GPU."""
NOISE = {
    "vtrain": "not stated", "llm-foundry": "not stated",
    "megatron-bridge": "same configuration over releases differs by 1 to 10 %", "korthikanti2022": "not stated",
    "bigscience": "the source states up to 40 % between allocations", "mlperf_training_5.0": "0.2 % between runs, "
    "0.5 to 4 % between submitters", "deeplearningexamples": "not stated", "torchtitan": "not stated",
    "simumax": "not stated",
}  # fmt: skip
"""Spread of repeated measurements of each source."""


class UnansweredError(Exception):
    """A row that is no question to the model, with the reason that is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A measured step as a question."""

    row: Row
    """The row."""
    shape: TransformerShape
    """Model."""
    plan: TrainingPlan
    """Plan."""
    fabric: str
    """Fabric inside a node, `+` the one between nodes."""
    stack: str
    """Software stack."""
    measured_s: float
    """Measured time of a step."""

    @property
    def group(self) -> str:
        """Model by which halves of a source are split."""
        return f"{self.shape.hidden}x{self.shape.layer_count}"


def training_case(row: Row) -> TrainingCase:
    """Return the question of a row.

    Raises:
        UnansweredError: the row states too little, or the model does not know such work.
    """
    read = _READERS.get(row["source"], _read_any)
    measured_s = _measured_s(row)
    try:
        shape, plan, stack = read(row)
    except NearpeakError as error:
        raise UnansweredError(f"{str(error).split(':')[0]}") from None
    gpu = _GPUS.get(row["gpu"], row["gpu"])
    if gpu not in _NODE:
        raise UnansweredError(f"no fabric of {gpu}")
    if plan.rank_count != int(row["n_gpus"]):
        raise UnansweredError("degrees do not give the number of GPUs")
    network = _NETWORK.get(row["source"], "ib_ndr")
    if row["source"] == "llm-foundry" and gpu.startswith("a100"):
        network = "roce200"
    fabric = f"{_NODE[gpu]}+{network}" if plan.rank_count > int(row["gpus_per_node"] or 8) else _NODE[gpu]
    return TrainingCase(row=row, shape=shape, plan=plan, fabric=fabric, stack=stack, measured_s=measured_s)


def _measured_s(row: Row) -> float:
    """Return the time of a step, from the tokens per second where the row states these alone."""
    if row["step_ms"]:
        return float(row["step_ms"]) / 1e3
    rate = row["tokens_per_s"] or (row["tokens_per_s_gpu"] or 0) * (row["n_gpus"] or 0)
    words = str(row["extra"]).lower()  # of fine-tuning: tokens per second of packed sequences of unstated length
    is_tuned = any(word in words for word in ("sft", "lora", "fine"))
    if not (rate and row["global_batch"] and row["seq"]) or is_tuned:
        raise UnansweredError("no step time")
    return float(row["global_batch"] * row["seq"] / rate)


def target_name(row: Row) -> str:
    """Return the target of a row."""
    return str(_GPUS.get(row["gpu"], row["gpu"]))


def _whole(row: Row, name: str, default: int | None = None) -> int:
    value = row[name]
    if value is None or math.isnan(value):
        if default is None:
            raise UnansweredError(f"{name} is not stated")
        return default
    return int(value)


def _stated_shape(row: Row, like: str) -> TransformerShape:
    return shape_from_extents(
        hidden=_whole(row, "hidden"), layers=_whole(row, "layers"), heads=_whole(row, "heads"),
        ffn=_whole(row, "ffn", 0), vocabulary=_whole(row, "vocab", 51_200), name=row["model"], like=like,
        position_count=_whole(row, "seq"),
    )  # fmt: skip


def _degrees(row: Row) -> dict[str, int]:
    found = {name: _whole(row, name, 1) for name in ("tp", "pp", "cp", "ep")}
    dp = _whole(row, "n_gpus") // (found["tp"] * found["pp"] * found["cp"])
    if dp < 1:
        raise UnansweredError("degrees do not give the number of GPUs")
    return {**found, "dp": dp, "chunk_count": _whole(row, "vpp", 1)}


def _vtrain(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    """Full recomputation, gradients reduced after the backward pass (the source's note)."""
    plan = TrainingPlan(
        **_degrees(row), micro_batch=_whole(row, "micro_batch"), global_batch=_whole(row, "global_batch"),
        sequence=_whole(row, "seq"), recompute="full", precision="fp16", framework="deepspeed", dp_overlap=False,
    )  # fmt: skip
    return _stated_shape(row, "megatron_gpt"), plan, "megatron-deepspeed-2022"


def _llm_foundry(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    # Transformer Engine's default recipe of 2023 was delayed scaling.
    precision = "fp8-delayed" if row["precision"] == "fp8" else str(row["precision"])
    if row["global_batch"] % (row["n_gpus"] * row["micro_batch"]):
        raise UnansweredError("micro-batches do not divide the batch")
    plan = TrainingPlan(
        dp=_whole(row, "n_gpus"), micro_batch=_whole(row, "micro_batch"), global_batch=_whole(row, "global_batch"),
        sequence=_whole(row, "seq"), recompute=row["recompute"] or "none", precision=precision, framework="fsdp2",
        sharding="fsdp" if row["sharding"] == "FULL_SHARD" else "zero2",
    )  # fmt: skip
    return replace(shape_of(row["model"]), position_count=plan.sequence), plan, "fsdp-composer"


_PRECISIONS = {
    "bf16": "bf16", "fp8-cs": "fp8-current", "fp8-cs (fp8-mx)": "fp8-current", "fp8-mx": "mxfp8", "mxfp8": "mxfp8",
    "fp8": "fp8-current", "nvfp4": "nvfp4", "fp8-ds": "fp8-delayed", "fp8-sc": "fp8-block", "fp16": "fp16",
    "amp_fp16": "fp16", "amp_bf16": "bf16", "tensorwise": "fp8-current",
}  # fmt: skip


def _megatron_bridge(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    if row["precision"] not in _PRECISIONS:
        raise UnansweredError("precision is not stated")
    if "tokendrop" in row["model"]:
        raise UnansweredError("capacity of token dropping is not stated")
    degrees = _degrees(row)
    plan = TrainingPlan(
        **degrees, micro_batch=_whole(row, "micro_batch"), global_batch=_whole(row, "global_batch"),
        sequence=_whole(row, "seq"), precision=_PRECISIONS[row["precision"]], sequence_parallel=degrees["tp"] > 1,
        sharding="fsdp" if row["sharding"] == "fsdp" else "zero1", tp_overlap=degrees["tp"] > 1,
        schedule="interleaved" if degrees["chunk_count"] > 1 else "1f1b",
    )  # fmt: skip
    shape = shape_of(row["model"])
    # Dropless experts have extents that graphs cannot capture.
    return shape, plan, "megatron-bridge-experts" if shape.experts else "megatron-bridge"


def _korthikanti(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    degrees = _degrees(row)
    selective = str(row["recompute"]).startswith("selective")
    plan = TrainingPlan(
        **degrees, micro_batch=_whole(row, "micro_batch"), global_batch=_whole(row, "global_batch"),
        sequence=_whole(row, "seq"), recompute="selective" if selective else "full", sequence_parallel=selective,
        precision="fp16", schedule="interleaved" if degrees["chunk_count"] > 1 else "1f1b",
    )  # fmt: skip
    return _stated_shape(row, "megatron_gpt"), plan, "megatron-lm-2022"


def _deep_learning_examples(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    """Pre-training of BERT-large with data parallelism; further models of the source have no rank program."""
    section = str(extra_of(row).get("section", "")).lower()
    if row["model"] != "LanguageModeling/BERT" or "pre-training" not in section:
        raise UnansweredError("no rank program of this model")
    precision = {"amp_fp16": "fp16", "fp32": "fp32", "tf32": "tf32"}.get(str(row["precision"]), "")
    micro, devices = _whole(row, "micro_batch"), _whole(row, "n_gpus")
    batch = _whole(row, "global_batch", micro * _whole(row, "grad_accum") * devices)
    if not precision or batch % (micro * devices):
        raise UnansweredError("micro-batches do not divide the batch")
    plan = TrainingPlan(
        dp=devices, micro_batch=micro, global_batch=batch, sequence=_whole(row, "seq"), precision=precision,
        framework="ddp",
    )  # fmt: skip
    return shape_of("bert-large"), plan, "ddp-apex"


_BIGSCIENCE = {
    7: (4096, 36), 14: (6144, 32), 18: (6144, 40), 25: (7168, 40), 30: (7168, 48), 39: (8192, 48), 52: (8192, 64),
    65: (9216, 64), 81: (10240, 64), 97: (11264, 64), 116: (12288, 64), 136: (13312, 64), 158: (14336, 64),
    181: (15360, 64), 206: (16384, 64),
}  # fmt: skip
"""Hidden width and layers by size in 1e9 parameters, and 32 heads, vocabulary 50,257: the source's
experiments/gpt2-meg/meg_gpt2_perf_n16.slurm."""


def _bigscience(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    """Megatron-LM of 2021 with full recomputation; runs with offload are left out."""
    section = str(extra_of(row).get("section", ""))
    if "Offload" in section or "HF" in section:
        raise UnansweredError("offload to the host is not modelled")
    size = int(float(row["params_b"]))
    if size not in _BIGSCIENCE:
        raise UnansweredError("extents of this size are not stated")
    hidden, layers = _BIGSCIENCE[size]
    shape = shape_from_extents(hidden=hidden, layers=layers, heads=32, vocabulary=50_257, name=row["model"],
                               like="megatron_gpt", position_count=1024)  # fmt: skip
    is_zero = "ZeRO" in section and row["pp"] is None
    plan = TrainingPlan(
        **_degrees(row), micro_batch=_whole(row, "micro_batch"), global_batch=_whole(row, "global_batch"),
        sequence=_whole(row, "seq"), recompute="full", precision="fp16", sharding="zero3" if is_zero else "none",
        framework="deepspeed" if is_zero else "megatron-lm", dp_overlap=is_zero,
    )  # fmt: skip
    return shape, plan, "megatron-lm-2022"


def _read_any(row: Row) -> tuple[TransformerShape, TrainingPlan, str]:
    """A row of any other source that states its degrees."""
    model = str(row["model"])
    is_adapted = "lora" in model.lower()
    for name in ("tp", "pp"):
        _whole(row, name)
    degrees = _degrees(row)
    words = " ".join(str(row[name] or "") for name in ("note", "extra", "framework", "sharding", "recompute")).lower()
    is_torch = any(name in words for name in ("torchtitan", "fsdp"))
    precision = _PRECISIONS.get(str(row["precision"]).lower(), "fp8-delayed" if "mlperf" in row["source"] else "")
    if not precision:
        raise UnansweredError("precision is not stated")
    batch = _whole(row, "global_batch")
    micro = _whole(row, "micro_batch", max(batch // (degrees["dp"] * _whole(row, "grad_accum", 1)), 1))
    is_split = degrees["tp"] > 1 and str(row["sp"]).lower() != "false"
    plan = TrainingPlan(
        **degrees,
        micro_batch=micro,
        global_batch=batch,
        sequence=_whole(row, "seq"),
        precision=precision,
        sequence_parallel=is_split,
        sharding=_sharding(words, degrees["dp"] * degrees["cp"]),
        recompute=_recompute(str(row["recompute"] or "")),
        framework="fsdp2" if is_torch else "megatron-lm",
        schedule="interleaved" if degrees["chunk_count"] > 1 else "1f1b",
        tp_overlap="async" in words or "mlperf" in row["source"],
        is_compiled=is_torch,
        adapter_rank=_ADAPTER_RANK if is_adapted else 0,
    )
    shape = shape_of(model.replace("llama31_", "llama-3.1-").replace("llama3_1_", "llama-3.1-"))
    stack = "torchtitan" if is_torch else "megatron-bridge" if "mlperf" in row["source"] else "megatron-lm"
    return shape, plan, stack


_ADAPTER_RANK = 16
"""Rank of MLPerf Training's LoRA benchmark: mlcommons/training, llama2_70b_lora/README.md, hyperparameters."""


def _sharding(words: str, replicas: int) -> str:
    if replicas == 1:
        return "none"
    for word, sharding in (("hsdp", "hsdp"), ("fsdp", "fsdp"), ("torchtitan", "fsdp"), ("zero3", "zero3")):
        if word in words:
            return sharding
    return "zero1"


def _recompute(word: str) -> str:
    return next((name for name in ("selective", "full") if name in word.lower()), "none")


_READERS: Mapping[str, Callable[[Row], tuple[TransformerShape, TrainingPlan, str]]] = {
    "vtrain": _vtrain, "llm-foundry": _llm_foundry, "megatron-bridge": _megatron_bridge,
    "korthikanti2022": _korthikanti, "bigscience": _bigscience, "deeplearningexamples": _deep_learning_examples,
}  # fmt: skip


def extra_of(row: Row) -> Mapping[str, Any]:
    """Return what else the source says of a row."""
    found: Mapping[str, Any] = json.loads(row["extra"]) if row["extra"] else {}
    return found
