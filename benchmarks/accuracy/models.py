"""Whole models: predicted steps beside measured ones, `python -m benchmarks.accuracy.models CORPUS [--page]`."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nearpeak
from benchmarks.accuracy.names import target_name
from benchmarks.accuracy.pages import PAGES, write_page
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError
from nearpeak.targets import TARGETS, target_of

PAGE = PAGES / "accuracy_models.md"
HEAD = """# How far predictions of whole models are from measurements

Written by `python -m benchmarks.accuracy.models CORPUS --page`; nothing is fitted by it, and no row of whole models was
ever fitted on. A model of the published shape is captured (transformers, fp32, attention as separate products, as these
rows were measured), each of its calls predicted with the coefficients that ship, and the times added up.

NeuSight ran PyTorch 2.1 eagerly; the shapes of GPT-3 XL (24 layers of 3072) and GPT-3 2.7B (32 of 2560) are those of
its own operator tables. Not modelled: gaps between kernels where the host is slower than the device, the allocator, and
Switch Transformer (its routing is data). Rows with fusion are left out.

vTrain beside it (`--vtrain`): Megatron in fp16 on up to eight A100, data parallelism alone, of its smallest and its
largest such network. An iteration is its micro-batches one after the other, one all-reduce of the gradients and Adam.
With one sequence per micro-batch the host is slower than the device, which is not modelled; with eight it is not.

| source | device | model | phase | batch | measured | predicted | error | calls not predicted |
|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model as transformers builds it."""

    kind: str
    """Model type of transformers."""
    head: str
    """Class of transformers."""
    config: dict[str, Any]
    """What differs from the defaults of the type."""


def _gpt(width: int, layers: int, heads: int, length: int) -> Network:
    return Network(
        kind="gpt2", head="GPT2LMHeadModel",
        config={"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": length},
    )  # fmt: skip


NETWORKS = {
    "bert_large": Network(
        kind="bert", head="BertForSequenceClassification",
        config={
            "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "vocab_size": 30522,
        },
    ),
    "gpt2_large": _gpt(1280, 36, 20, 1024),
    "gpt3_xl": _gpt(3072, 24, 24, 2048),
    "gpt3_27": _gpt(2560, 32, 32, 2048),
    "opt_13": Network(
        kind="opt", head="OPTForCausalLM",
        config={
            "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
            "word_embed_proj_dim": 2048, "vocab_size": 50272,
        },
    ),
}  # fmt: skip
"""Models by the corpus' name; published sizes, checked against the operators that NeuSight lists for each."""
VTRAIN = {
    "gpt_h1024_a16_l12": _gpt(1024, 12, 16, 1024), "gpt_h2048_a16_l24": _gpt(2048, 24, 16, 1024),
}  # fmt: skip
"""Networks of vTrain that are scored: the smallest and the largest of those measured on up to eight devices."""
VTRAIN_MICRO = (1, 8)
"""Sequences of a micro-batch: where the host is slower than the device, and where it is not."""


def main() -> None:
    """Print one line per row and the mean errors; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.models", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--vtrain", action="store_true", help="data-parallel training of vTrain as well")
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_models.md")
    options = parser.parse_args()
    errors: dict[str, list[float]] = {}
    lines = []
    path = options.corpus / "e2e.parquet"
    if not path.exists():
        parser.error(f"{path}: not found; it holds the times of whole models")
    for line, source, error in (*_rows(path), *(_iterations(path) if options.vtrain else ())):
        print(line, flush=True)
        lines.append(line)
        errors.setdefault(source, []).append(error)
    means = [
        f"{source}: mean absolute error {100 * np.mean(np.abs(own)):.1f} %, bias {100 * np.mean(own):+.1f} %, "
        f"{len(own)} rows."
        for source, own in errors.items()
    ]
    print("\n".join(means))
    if options.page:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n\n" + "\n".join(means) + "\n")


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    import duckdb

    query = (
        "select source, device, model, phase, batch, isl, metric, value from read_parquet(?) "
        "where source = 'neusight' and parallel = '' order by all"
    )
    steps: dict[tuple[Any, ...], Any] = {}
    for source, device, model, phase, batch, length, metric, value in duckdb.sql(query, params=[str(path)]).fetchall():
        if model not in NETWORKS:
            continue
        target = target_name(device)
        key = (model, phase, batch, length)
        if key not in steps:
            steps[key] = captured(NETWORKS[model], batch, length, training=phase == "train")
        try:
            found = predicted(steps[key], target)
        except NearpeakError as error:
            print(f"{source} {device} {model}: {error}", file=sys.stderr)
            continue
        time_s = {
            "step_latency": sum(found[0].values()), "forward_latency": found[0].get("forward", 0.0),
            "backward_latency": sum(time for name, time in found[0].items() if name != "forward"),
        }[metric]  # fmt: skip
        ratio = time_s / (value * 1e-3) - 1
        cells = (
            source, target, model, f"{phase} {metric.split('_')[0]}", str(batch), f"{value:.0f} ms",
            f"{1e3 * time_s:.0f} ms", f"{100 * ratio:+.1f} %", str(found[1]),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |", source, ratio


def _iterations(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the rows of vTrain without tensor and pipeline parallelism, of the shallowest and the deepest networks.

    An iteration is its micro-batches one after the other, an all-reduce of the gradients in fp16, and Adam.
    """
    import duckdb

    query = (
        "select device, model, batch, isl, value, "
        "regexp_extract(parallel, 'mbs([0-9]+)_tp1_dp([0-9]+)_pp1', ['m', 'd']) as how "
        "from read_parquet(?) where source = 'vtrain' and parallel like '%tp1_dp%_pp1' and "
        f"model in ({', '.join(repr(name) for name in VTRAIN)}) order by all"
    )
    steps: dict[tuple[str, int, str], tuple[float, int]] = {}
    for device, model, batch, length, value, how in duckdb.sql(query, params=[str(path)]).fetchall():
        micro, ranks, target = int(how["m"]), int(how["d"]), target_name(device)
        if micro not in VTRAIN_MICRO or target not in TARGETS:
            continue
        if (model, micro, target) not in steps:
            found, missing = predicted(captured(VTRAIN[model], micro, length, training=True, dtype="float16"), target)
            steps[model, micro, target] = (sum(found.values()), missing)
        step_s, missing = steps[model, micro, target]
        size = VTRAIN[model].config
        parameters = 12 * size["n_layer"] * size["n_embd"] ** 2 + 51200 * size["n_embd"]
        other = (
            nearpeak.case("collective", elements=parameters // ranks * ranks, ranks=ranks, dtype="fp16"),
            nearpeak.case("adamw", parameters=parameters, dtype="fp32"),
        )
        time_s = batch // (micro * ranks) * step_s + sum(nearpeak.predict(one, target).time_s for one in other)
        error = time_s / (value * 1e-3) - 1
        cells = (
            "vtrain", f"{ranks} x {target}", model, f"train iteration, micro-batch {micro}", str(batch),
            f"{value:.0f} ms", f"{1e3 * time_s:.0f} ms", f"{100 * error:+.1f} %", str(missing),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |", f"vtrain, micro-batch {micro}", error


def captured(network: Network, batch: int, length: int, *, training: bool, dtype: str = "float32") -> Workload:
    """Return the calls of a step, on tensors without memory."""
    import torch
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = transformers.AutoConfig.for_model(network.kind, **network.config)
    config._attn_implementation = "eager"
    config.use_cache = False
    config.dtype = getattr(torch, dtype)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            whole = getattr(transformers, network.head)(config).train(training)
            tokens = torch.zeros(batch, length, dtype=torch.int64)
    finally:
        torch.set_default_dtype(usual)
    return nearpeak.capture(whole, inputs=(tokens,), step="train" if training else "forward")


def predicted(workload: Workload, target: str) -> tuple[dict[str, float], int]:
    """Return the expected time by phase, and the calls that are not in it."""
    analysis = nearpeak.analyze(workload, [target_of(target)])
    found: dict[str, float] = {}
    missing = 0
    for row, time in zip(analysis.rows, analysis.targets[0].times, strict=True):
        if time.prediction is None:
            missing += row.call_count
            continue
        phase = getattr(row, "phase", "forward")
        if phase == "optimizer":
            continue
        found[phase] = found.get(phase, 0.0) + time.prediction.time_s * row.call_count
    return found, missing


if __name__ == "__main__":
    main()
