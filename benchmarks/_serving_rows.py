"""Rows of published serving measurements, read as what the serving plan takes."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NearpeakError, NotModelledError
from nearpeak.frontends.huggingface.transformer_models import shape_of

SHARED = Path(__file__).parents[2] / "shared/scale/serve.parquet"
ENGINES = {
    "vllm (2023)": "vllm_2023", "vLLM": "vllm_v0", "TensorRT-LLM": "trtllm_cpp", "Deepspeed-MII": "deepspeed_mii",
    "trtllm": "trtllm", "vllm": "vllm_v1", "sglang": "sglang", "SGLang": "sglang",
}  # fmt: skip
"""Engine family by the name of the framework in the rows."""
TARGETS = {("llm-inference-bench", "a100_sxm_80gb"): "a100_sxm_40gb"}
"""Devices that the data names otherwise. LLM-Inference-Bench does not state the memory of its A100: 70B models on four
of them leave no room for the cache beyond 40 GB each, and one token of an 8B model takes 13.8 ms, 16 GB at 75 % of the
1.555 TB/s of the 40 GB board."""
SCHEMES = {"fp8": "fp8_tensor", "fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "fp8_block": "fp8_block",
           "int8": "int8_row", "int4": "int4_weight_only", "fp8_ootb": "fp8_tensor", "float16": "bf16", "fp16": "bf16",
           "bf16": "bf16", "bfloat16": "bf16", "": "bf16", "w4a16_mxfp4": "mxfp4_weight_only",
           "w4a8_mxfp4_mxfp8": "mxfp4_weight_only", "w4a16": "int4_weight_only"}  # fmt: skip
"""Scheme by the name of a precision in the rows."""
INFERENCEX_MEAN = 0.9
"""Mean length of InferenceX's requests over the longest: lengths are spread evenly over the upper fifth.
Source: InferenceMAX README, client configuration: RANDOM_RANGE_RATIO 0.8, ten requests per client."""
INFERENCEX_SPREAD = 0.1 / INFERENCEX_MEAN
INFERENCEX_REPLY_TOKENS = 10
"""Tokens of one message of TensorRT-LLM with DeepSeek in InferenceX.
Source: InferenceMAX, benchmarks/dsr1_fp4_b200_trt_slurm.sh and dsr1_fp8_b200_trt: stream_interval 10."""
INFERENCEX_MARGIN = 64
"""Tokens of a step beyond the longest prompt and one per client, which TensorRT-LLM gets in InferenceX.
Source: InferenceMAX, benchmarks/dsr1_fp8_b200_trt: max_num_tokens = concurrency + input length + 64."""
INFERENCEX_RANK_WAIT = 60
"""Steps that TensorRT-LLM's prompts wait for prompts of the other attention ranks in InferenceX.
Source: InferenceMAX, benchmarks/dsr1_fp8_b200_trt_slurm.sh and dsr1_fp4_b200_trt: attention_dp_config with
enable_balance: true and timeout_iters: 60."""
SILICON_SPREAD = 0.02
"""Spread of output lengths where the source states none; equal ones would keep all clients in step for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement and the question that it answers."""

    id: str
    """Hash of the row."""
    source: str
    """Source, with its kind of run where there are several."""
    framework: str
    """Framework as the row names it."""
    gpu: str
    """Device as the row names it."""
    engine: str
    """Engine family."""
    target: str
    """Device."""
    shape: TransformerShape
    """Model."""
    model: str
    """Model as the row names it."""
    layout: ServingLayout
    """Degrees and formats."""
    input_tokens: int
    """Prompt tokens of a request, mean."""
    output_tokens: int
    """Generated tokens of a request, mean."""
    concurrency: int = 0
    """Clients of a closed loop; 0 for a batch."""
    batch: int = 0
    """Requests of a batch; 0 where requests always wait."""
    spread: float = 0.0
    """Half width of the spread of output lengths."""
    reply_tokens: int = 1
    """Tokens of one message to the client."""
    token_budget: int = 0
    """Most tokens of a step where the source states it; 0 for the engine's default."""
    rank_wait_steps: int = 0
    """Most steps that prompts of one attention rank wait for those of others, where the source states it."""
    measured: Mapping[str, float]
    """What was measured: `tpot_s`, `ttft_s`, `latency_s`, `output_tokens_per_s`."""


def rows_of(path: Path = SHARED) -> Iterator[Row | tuple[str, str, str]]:
    """Yield the usable rows of a file; for one without a question, its source, framework and the reason."""
    import polars

    frame = polars.read_parquet(path)
    for record in frame.filter(polars.col("quality") == "ok").to_dicts():
        values = {name: value for name, value in record.items() if value is not None and str(value) != "nan"}
        try:
            yield row_of(values)
        except NearpeakError as error:
            yield str(values["source"]), str(values.get("framework", "")), str(error).splitlines()[0]


def row_of(values: Mapping[str, Any]) -> Row:
    """Return the question of one row.

    Raises:
        NearpeakError: model, framework, kind or precision is not one that can be asked about.
    """
    measured = _measured(values)
    if not measured:
        raise NotModelledError(f"kind {values['kind']}: none of the measured values is predicted")
    framework, source, kind = str(values.get("framework", "")), str(values["source"]), str(values["kind"])
    needed = ["gpu", "model", "isl", "osl", *(["batch"] if kind == "infer_batch" else [])]
    absent = [name for name in needed if name not in values]
    if absent or (kind == "serve" and not {"concurrency", "batch"} & set(values)):
        raise NotModelledError(f"kind {kind}: the row does not state {', '.join(absent) or 'its concurrency'}")
    if values.get("mode") not in (None, "", "agg", "offline max") or int(values.get("prefill_gpus") or 0):
        raise NotModelledError(f"mode {values.get('mode')}: pools of devices for prompts and decoding")
    if framework not in ENGINES:
        raise NotModelledError(f"framework {framework!r} has no engine family")
    if "power cap" in str(values.get("note", "")):
        raise NotModelledError("a power cap below the board's limit, at unstated clocks")
    extra = json.loads(str(values.get("extra") or "{}"))
    shape = _shape(str(values["model"]))
    is_own = str(extra.get("image", "")).startswith("silicon")
    is_public = source.startswith("inferencex") and not is_own and "dynamo" not in str(extra.get("image", ""))
    mean, spread = (INFERENCEX_MEAN, INFERENCEX_SPREAD) if is_public else (1.0, SILICON_SPREAD)
    is_routed = "dynamo" in str(extra.get("image", ""))  # concurrency counts all replicas, batch the row's own
    clients = (
        int(values["batch"] if is_routed or "concurrency" not in values else values["concurrency"])
        if (kind == "serve")
        else 0
    )
    return Row(
        id=str(values["id"]), source=f"{source}, silicon" if is_own else source, framework=framework,
        gpu=str(values["gpu"]), engine=ENGINES[framework], shape=shape, model=str(values["model"]),
        target=TARGETS.get((source, str(values["gpu"])), str(values["gpu"])), layout=_layout(values, extra, shape),
        input_tokens=round(float(values["isl"]) * mean), output_tokens=round(float(values["osl"]) * mean),
        concurrency=clients,
        batch=int(values["batch"]) if kind == "infer_batch" else 0, spread=spread if kind == "serve" else 0.0,
        reply_tokens=INFERENCEX_REPLY_TOKENS if is_public and framework == "trtllm" and shape.latent else 1,
        token_budget=clients + int(values["isl"]) + INFERENCEX_MARGIN if is_public and framework == "trtllm" else 0,
        rank_wait_steps=INFERENCEX_RANK_WAIT if is_public and framework == "trtllm" else 0, measured=measured,
    )  # fmt: skip


def _measured(values: Mapping[str, Any]) -> dict[str, float]:
    kind = values["kind"]
    if kind == "serve_offline":
        return {"output_tokens_per_s": float(values["out_tokens_per_s"])}
    names = {"tpot_ms": "tpot_s", "ttft_ms": "ttft_s"}
    if values["source"] == "llm-inference-bench":
        names = {"e2e_ms": "latency_s"}
        if values.get("osl") == 1:  # ten times what a prompt takes, whatever the device: another definition
            raise NotModelledError("time to first token of LLM-Inference-Bench, whose definition is not stated")
    elif kind not in ("serve", "infer_batch"):
        return {}
    return {to: float(values[name]) / 1e3 for name, to in names.items() if name in values}


def _layout(values: Mapping[str, Any], extra: Mapping[str, Any], shape: TransformerShape) -> ServingLayout:
    """Return degrees and formats.

    InferenceX counts devices as ep x etp where both span the same ones; attention is replicated where dp is above 1 or
    the row says so.
    """
    count, ep, etp = (int(values.get(name) or 1) for name in ("n_gpus", "ep", "etp"))
    if count > 8 and count == ep * etp:
        count = ep
    pp = int(values.get("pp") or 1)
    tp = count // pp
    is_replicated = int(values.get("dp") or 1) > 1 or extra.get("attention_dp") is True
    if not shape.experts:
        ep, is_replicated = 1, False
    elif is_replicated:
        ep = tp
    dense, experts = _schemes(values, extra, shape)
    is_wide_cache = str(values.get("framework")).lower().startswith("vllm") and values.get("gpu") != "b200_sxm"
    form = "bf16" if is_wide_cache else "fp8_e4m3"  # InferenceMAX, benchmarks/70b_fp8_b200_slurm.sh: kv-cache-dtype fp8
    is_wide = dense == "bf16" and experts == "bf16"
    stored = {"fp16": "bf16", "": "bf16" if is_wide else form}.get(str(values.get("kv_precision") or ""))
    return ServingLayout(
        tp=tp, pp=pp, ep=min(ep, tp) if tp % max(1, min(ep, tp)) == 0 else 1, attention_dp=tp if is_replicated else 1,
        weight_format=dense, expert_format=experts, kv_format=stored or {"fp8": "fp8_e4m3", "int8": "int8"}.get(
            str(values["kv_precision"]), "bf16"),
    )  # fmt: skip


def _schemes(values: Mapping[str, Any], extra: Mapping[str, Any], shape: TransformerShape) -> tuple[str, str]:
    """Return the formats of dense weights and of experts.

    DeepSeek's own fp8 checkpoints have blocks; NVIDIA's fp4 ones of it keep attention in bf16 (model cards of
    nvidia/DeepSeek-R1-FP4).
    """
    named = str(extra.get("gemm_quant") or values.get("precision") or "")
    routed = str(extra.get("moe_quant") or named)
    for name in (named, routed):
        if name not in SCHEMES:
            raise NotModelledError(f"precision {name!r} has no scheme")
    dense, experts = SCHEMES[named], SCHEMES[routed]
    if shape.latent is not None:
        dense = {"fp8_tensor": "fp8_block", "nvfp4": "bf16"}.get(dense, dense)
        experts = {"fp8_tensor": "fp8_block"}.get(experts, experts)
    return dense, experts


@lru_cache(maxsize=256)
def _shape(name: str) -> TransformerShape:
    return shape_of(re.sub(r"^llama2-", "llama-2-", name))
