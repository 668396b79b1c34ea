"""What of a corpus is not scored, with the reason: whole tables, and parts of those that a family reads."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy.families.collective import COPIES
from benchmarks.accuracy.family import EAGER, lacks

EVERY = "true"
TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "aic_attn_modules": ((EVERY, "whole modules: the sizes of projections, indexers and kept tokens are not stated"),),
    "aic_mhc": ((EVERY, "mixing of residual streams (hyper-connections): no operator here"),),
    "jetson_orin_nano_ncu": ((EVERY, "kernels by name and grid: the extents of operators are not stated"),),
    "e2e": ((EVERY, "whole models, no kernels: `.models`, `nearpeak plan` and the benchmarks of both score them"),),
    "aic_deepep": (
        ("n_gpus > 8", "more ranks than a node has: the network between nodes is not stated"),
        ("n_gpus <= 8 and sms > 0", "kernels on a given number of multiprocessors, which no case states"),
    ),
    "aic_wideep_moe": (
        (
            "op <> 'wideep_moe' and starts_with(distribution, 'power_law')",
            "rows of the timed rank under an unequal load are not stated (`rank0_tokens` -1)",
        ),
    ),
    "aic_linear_attention": (
        ("contains(op, 'conv1d')", "short causal convolutions with a state: no operator here"),
        ("phase = 'verify' and not contains(op, 'conv1d')", "verification of drafts keeps a state for each token"),
        ("starts_with(op, 'mamba2:mamba')", "only eager-timed rows of the newest software"),
    ),
    "aic_mla": (("op = 'mla_context' and flags & 4 > 0", "eager-timed: floors of 105 to 268 us are of the host"),),
    "aic_moe": (
        ("dtype in ('w4a8_mxfp4_mxfp8', 'w4afp8')", "weights of 4 bits beside tokens of 8: no such format here"),
    ),
    "aiter_moe": (
        ("not (contains(dtype, 'bfloat16') or contains(dtype, '1x128'))", "no such format of a grouped product here"),
    ),
    "aic_quantize": (("op <> 'quant_static'", "differences of two timings, no kernel's time"),),
    "llmservingsim_layers": (
        ("op = 'layer_attn'", "attention over caches whose lengths are not stated"),
        ("op in ('layer_lm_head', 'layer_gate') or contains(op, 'expert')", "the rows of the product are not stated"),
    ),
    "tracelens_ops": (("category <> 'GEMM'", "fused and unfused kernels under one name, strides not stated"),),
    "neusight_model_ops": (
        (
            "not (contains(op, 'addmm') or contains(op, 'bmm') or contains(op, 'matmul'))",
            "no work on the device, or operators that the other tables of this source hold",
        ),
    ),
    "vidur_collectives": (
        (COPIES, "the same to the last digit on two boards, and faster than the bridge between them: copies"),
        ("intra <> 1 or n_gpus <> per_node", "several nodes: the network between them is not stated"),
    ),
    "aic_gemm": ((f"not {lacks(EAGER)}", "eager-timed: the host's launch is in them"),),
}  # fmt: skip
"""By table: SQL of the rows that are left out, and why."""


def lines(corpus: Path, read: frozenset[str]) -> Iterator[str]:
    """Yield a row of the page for each reason that leaves rows of a corpus out.

    Args:
        read: tables that a family reads.
    """
    import duckdb

    for path in sorted(corpus.glob("*.parquet")):
        unknown = () if path.stem in read else ((EVERY, "no family reads a table of this name"),)
        for where, reason in TABLES.get(path.stem, unknown):
            try:
                query = f"select count(*), count(*) filter ({where}) from read_parquet(?)"
                whole, count = duckdb.sql(query, params=[str(path)]).fetchall()[0]
            except duckdb.Error:  # named where families cannot read it
                continue
            if count:
                yield f"| {path.stem} | {count} of {whole} | {reason} |"
