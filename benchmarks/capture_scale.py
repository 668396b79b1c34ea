"""CPU time and memory of capturing training steps of Llama-3-70B and DeepSeek-V3; time to bound the first."""

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks._figures import ROOT, Figure
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload

FIGURES = (
    "llama_70b_train_capture_seconds", "llama_70b_train_capture_memory", "llama_70b_train_bound_seconds",
    "llama_70b_train_calls", "llama_70b_train_cases", "deepseek_v3_train_capture_seconds",
    "deepseek_v3_train_capture_memory",
)  # fmt: skip
TARGETS = ("v100_sxm", "t4", "a100_sxm_80gb", "l40s", "h100_sxm", "h200_sxm", "b200_sxm", "mi300x")
RUNS = 3


def measure() -> Iterator[Figure]:
    """Yield the best of a few fresh processes, as other load on the machine only adds."""
    runs = [_run("llama-3-70b") for _ in range(RUNS)]
    cpu_s, memory, bound_s = (min(run[name] for run in runs) for name in ("cpu_s", "peak_bytes", "bound_s"))
    yield Figure(name=FIGURES[0], value=cpu_s, unit="s", bar="<= 10 s", passed=cpu_s <= 10)
    yield Figure(name=FIGURES[1], value=memory / 1e9, unit="GB", bar="< 1 GB", passed=memory < 1e9)
    yield Figure(name=FIGURES[2], value=bound_s, unit="s", bar="<= 1 s", passed=bound_s <= 1)
    yield Figure(name=FIGURES[3], value=runs[0]["calls"], unit="calls", bar="", passed=True)
    yield Figure(name=FIGURES[4], value=runs[0]["cases"], unit="cases", bar="", passed=True)
    runs = [_run("deepseek-v3") for _ in range(RUNS)]
    cpu_s, memory = (min(run[name] for run in runs) for name in ("cpu_s", "peak_bytes"))
    yield Figure(name=FIGURES[5], value=cpu_s, unit="s", bar="<= 15 s", passed=cpu_s <= 15)
    yield Figure(name=FIGURES[6], value=memory / 1e9, unit="GB", bar="< 1 GB", passed=memory < 1e9)


def _run(model: str) -> dict[str, Any]:
    """Return what a fresh process measures."""
    command = [sys.executable, "-m", "benchmarks.capture_scale", model]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout.splitlines()[-1]
    )
    return found


def capture_of(layers: int, tokens: int = 2048) -> Callable[[], Workload]:
    """Return the capture, its slow imports done.

    Dimensions: config.json of meta-llama/Meta-Llama-3-70B; one sequence of `tokens`, bf16, fused AdamW.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from nearpeak.frontends.torch.module_capture import capture_torch

    config = LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8, vocab_size=128256,
        num_hidden_layers=layers, max_position_embeddings=8192, use_cache=False,
    )  # fmt: skip

    def inputs() -> tuple[tuple[()], dict[str, Any]]:
        ids = torch.zeros(1, tokens, dtype=torch.int64)
        return (), {"input_ids": ids, "labels": ids}

    def build() -> Any:
        return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)

    return lambda: capture_torch(build, inputs, CaptureOptions(step="train"), name="llama-3-70b")


def _published(name: str) -> Callable[[], Workload]:
    """Return the capture of a training step of a model whose dimensions come with nearpeak, its slow imports done."""
    importlib.import_module("transformers.modeling_utils")
    from nearpeak.frontends.huggingface.architecture import capture_architecture

    return lambda: capture_architecture(name, CaptureOptions(step="train"))


def main(model: str) -> None:
    """Measure in this process and print one JSON object."""
    from nearpeak.api import questions

    capture = capture_of(layers=80) if model == "llama-3-70b" else _published(model)
    start_s = time.process_time()
    workload = capture()
    cpu_s = time.process_time() - start_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    targets = [questions.target(name) for name in TARGETS]
    start_s = time.perf_counter()
    for target in targets:
        questions.bound(workload, target)
    bound_s = time.perf_counter() - start_s
    counts = {"calls": len(workload.calls), "cases": len(workload.case_counts())}
    print(json.dumps({"cpu_s": cpu_s, "peak_bytes": peak, "bound_s": bound_s, **counts}))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "llama-3-70b")
