"""Served models: expected time per token in each execution mode beside published ones, `… accuracy.served [--page]`."""

import argparse
from dataclasses import dataclass

import nearpeak
from benchmarks.accuracy.pages import PAGES, write_page
from nearpeak.core.answers.execution_time import MODES
from nearpeak.targets import target_of

PAGE = PAGES / "accuracy_served.md"
HEAD = """# How far execution modes are from what servers publish

Written by `python -m benchmarks.accuracy.served --page`. Decode steps of Llama 3 8B in bf16 on one device; nothing is
fitted to these rows. *Published* is the time between tokens of one sequence; where only tokens per second are given,
the batch over them. Servers fuse norms, rotary embeddings and gates and submit one CUDA graph: that is the mode
`compiled`. `graph` is the graph of the calls as transformers writes them, 1,301 kernels against some 480, which nobody
serves: it lies above; `eager` is what `model.generate` without a compiler takes.

| source | device | batch | kv | published | eager | graph | compiled | error of compiled |
|---|---|--:|--:|--:|--:|--:|--:|--:|
"""
FOOT = """
What the rows hold beyond a decode step: vLLM's own benchmark is a whole request of 32 and 128 tokens with the scheduler
of its version between steps, so that its published time is longer than a step; one at 100 sequences admits new requests
(prefill) while others decode. The GH200 is taken as an H100 with its 4 TB/s of HBM3. Where prompts are part of the
published time (LLM-Inference-Bench: the request over its tokens; InferenceX: prompts of new requests between steps),
expected times hold the prefill of the batch, too, as a share of each token.

At batch 64 on an H100 the sources disagree by more than the bar: for 1,024 tokens in, TensorRT-LLM 1.0 needs 13.1 ms a
token over 512 tokens and the engines of LLM-Inference-Bench, versions not stated, 17 to 18 ms over 1,024. For an H200
no public figure at batch 1 or 64 of this model in bf16 was found that states batch and lengths; the one at batch 8
stands above.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published time per token."""

    source: str
    """Who published it, and where."""
    target: str
    """Device."""
    edits: tuple[str, ...] = ()
    """What of it differs."""
    batch: int
    """Sequences at a time."""
    kv: int
    """Positions in the cache, the middle of the run."""
    published_s: float
    """Time between two tokens of a sequence."""
    prompt: int = 0
    """Tokens of each prompt whose prefill the published time holds, as a share of each token that follows."""
    output: int = 1
    """Tokens that follow such a prompt."""


NIM = "NVIDIA NIM, Llama 3.1 Nemotron Safety Guard 8B 1.14.0, docs.nvidia.com/nim, GH200 480GB BF16, 1000 in, 1000 out"
ARGONNE = "argonne-lcf/LLM-Inference-Bench 4211f5d, Plots/All_results.csv, {}, fp16, whole batch, 1024 in, 1024 out"
INFERENCEX = (
    "ai-dynamo/aiconfigurator 095f58a, silicon_sample.csv (InferenceX), TensorRT-LLM 1.0.0rc3, Llama 3.1 8B, format "
    "not stated, 64 at a time, 1024 in, {} out"
)
ROWS = (
    Row(source="LambdaLabsML/vllm-benchmark a4f9f43, results/prompt_10, vLLM 0.6, last request, ten steps at a time",
        target="h100_sxm", batch=1, kv=700, published_s=70.5e-3 / 10),
    Row(source=NIM, target="h100_sxm", edits=('dram.bandwidth="4 TB/s"',), batch=1, kv=1500, published_s=1 / 165.83),
    Row(source=NIM, target="h100_sxm", edits=('dram.bandwidth="4 TB/s"',), batch=100, kv=1500,
        published_s=100 / 7590.5),
    Row(source="vLLM performance benchmark, buildkite.com/vllm build 9515, 32 in, 128 out", target="h200_sxm", batch=8,
        kv=96, published_s=0.83342 / 128),
    Row(source="johnmusgrave.com, vLLM 0.23, 1024 in, 128 out, about 75 tokens/s", target="a100_sxm_40gb", batch=1,
        kv=1088, published_s=1 / 75),
    *(Row(source=ARGONNE.format(engine), target="h100_sxm", batch=batch, kv=1536, published_s=request_s / 1024,
          prompt=1024, output=1024)
      for engine, batch, request_s in (("TensorRT-LLM", 1, 7.728985), ("vLLM", 1, 8.097760),
                                       ("TensorRT-LLM", 64, 17.483193), ("vLLM", 64, 18.808667))),
    *(Row(source=INFERENCEX.format(output), target="h100_sxm", batch=64, kv=1024 + output // 2, published_s=tpot_s,
          prompt=1024, output=output)
      for output, tpot_s in ((128, 20.051583e-3), (256, 15.198514e-3), (512, 13.102298e-3))),
)  # fmt: skip
"""Published figures that state device, batch and lengths."""


def line_of(row: Row) -> str:
    """Return a row of the table."""
    workload = nearpeak.capture("llama-3-8b", step="decode", batch=row.batch, kv=row.kv, dtype="bf16")
    answer = nearpeak.analyze(workload, target_of(row.target, row.edits)).targets[0]
    times = {execution.mode: execution.time_s for execution in answer.executions}
    if row.prompt:
        workload = nearpeak.capture("llama-3-8b", step="forward", batch=row.batch, sequence=row.prompt, dtype="bf16")
        for execution in nearpeak.analyze(workload, target_of(row.target, row.edits)).targets[0].executions:
            times[execution.mode] += execution.time_s / row.output
    error = times["compiled"] / row.published_s - 1
    device = " ".join([row.target, *row.edits])
    shown = " | ".join(f"{1e3 * time_s:.2f} ms" for time_s in (row.published_s, *(times[mode] for mode in MODES)))
    return f"| {row.source} | {device} | {row.batch} | {row.kv} | {shown} | {100 * error:+.1f} % |"


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_served.md")
    lines = "\n".join(line_of(row) for row in ROWS)
    if parser.parse_args().page:
        write_page(PAGE, f"{HEAD}{lines}\n{FOOT}")
    else:
        print(lines)


if __name__ == "__main__":
    main()
