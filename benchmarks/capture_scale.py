"""CPU time and peak memory of capturing a whole training step of a decoder with the dimensions of Llama-3-70B."""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from nearpeak.core.workload import Workload


def capture_of(layers: int) -> Callable[[], Workload]:
    """Return the capture, its slow imports done: dimensions of meta-llama/Meta-Llama-3-70B, config.json."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from nearpeak.capture.torch_dispatch import capture_torch

    config = LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8, vocab_size=128256,
        num_hidden_layers=layers, max_position_embeddings=8192, use_cache=False, dtype="bfloat16",
    )  # fmt: skip

    def inputs() -> tuple[tuple[()], dict[str, Any]]:
        ids = torch.zeros(1, 2048, dtype=torch.int64)
        return (), {"input_ids": ids, "labels": ids}

    def build() -> Any:
        return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)

    return lambda: capture_torch(build, inputs, name="llama-3-70b", step="train")


def main() -> None:
    """Print one JSON line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    layers = parser.parse_args().layers
    capture = capture_of(layers)
    start = time.process_time()
    workload = capture()
    cpu_s = time.process_time() - start
    scale = 1 if sys.platform == "darwin" else 1024  # getrusage gives KiB on Linux
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    figures = (
        ("llama_3_70b_train_capture_cpu", cpu_s, "s"),
        ("llama_3_70b_train_capture_peak_memory", peak_bytes, "B"),
        ("llama_3_70b_train_calls", len(workload.calls), "calls"),
        ("llama_3_70b_train_distinct_cases", len(workload.case_counts()), "cases"),
    )
    for name, value, unit in figures:
        print(json.dumps({"name": name, "value": value, "unit": unit}))


if __name__ == "__main__":
    main()
