"""Collectives among two and four devices of a node, and messages between two."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.accuracy.family import EAGER, OLD, Block, Family, best_rows, kinds_of, lacks, site_numbers, target_name

FORMATS = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "int8": "int8"}
KINDS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
         "send_recv": "send", "alltoall": "all_to_all"}  # fmt: skip
LEAST_US = 8
"""Times of Vidur below this are left out: they are rounded to whole microseconds."""
COPIES = "op = 'send_recv' and contains(device, 'pcie')"
"""Messages of Vidur that are no measurements: all 1,692 of its A100 and H100 boards in PCIe slots are the same to the
last digit, deviations included, and the longest pass 343 GB/s through bridges that give 300 (NVIDIA's datasheets)."""
ONE_NODE = f"intra = 1 and n_gpus = per_node and latency_us >= {LEAST_US} and not ({COPIES})"
FILES = {"aic_collectives": "true", "vidur_collectives": ONE_NODE}
"""Files, with the rows that map cleanly."""
LEAST_ROWS = 20
DEEPEP = {"deepep_ll_dispatch": ("int8", 1), "deepep_ll_combine": ("fp16", 2)}
"""Format and bytes of a number that DeepEP's kernels of low latency send: tokens in fp8 to experts, results in bf16
back (deepseek-ai/DeepEP, README). The others run on a given number of multiprocessors, which no case states."""
NODE_RANKS = 8
"""Ranks of a node; the network of more is not stated."""


def _blocks(folder: Path) -> Iterator[Block]:
    for file, where in FILES.items():
        path = folder / f"{file}.parquet"
        names = ("source", "device", "op", "dtype")
        for name in kinds_of(path, *names, known=lambda *kind: kind[2] in KINDS and kind[3] in FORMATS):
            yield _block(path, name, where)
    path = folder / "aic_deepep.parquet"
    for name in kinds_of(
        path, "source", "device", "op", "n_gpus", known=lambda *kind: kind[2] in DEEPEP and kind[3] == NODE_RANKS
    ):
        yield _of_experts(path, name)


def _of_experts(path: Path, name: tuple[str, str, str, int]) -> Block:
    """Return DeepEP's kernels as all-to-alls.

    A token goes to each rank that holds one of its experts, once: with evenly spread experts to ranks * (1 - (1 - 1 /
    ranks) ** topk) of them.
    """
    source, device, op, ranks = name
    dtype, width = DEEPEP[op]
    where = f"source = ? and device = ? and op = ? and n_gpus = ? and {lacks(OLD | EAGER)}"
    found = best_rows(path, ("tokens", "hidden", "topk"), where, name, positive=("tokens", "hidden", "topk"))
    tokens, hidden, chosen = (found[axis].astype(np.int64) for axis in ("tokens", "hidden", "topk"))
    sent = tokens * hidden * ranks * (1 - (1 - 1 / ranks) ** chosen)
    return Block(
        source=source, device=target_name(device), kind=f"{op} {8 * width} bits", op="collective",
        dtypes={"dtype": dtype}, attributes={"kind": "all_to_all"}, measured_s=found["best"],
        left_out=found["left_out"],
        axes={"elements": np.ceil(sent / ranks).astype(np.int64) * ranks, "ranks": np.full(len(tokens), ranks)},
        sites=site_numbers(tokens, hidden, chosen),
    )  # fmt: skip


def _block(path: Path, name: tuple[str, ...], where: str) -> Block:
    source, device, op, dtype = name
    condition = f"source = ? and device = ? and op = ? and dtype = ? and {lacks(OLD | EAGER)} and {where}"
    found = best_rows(path, ("bytes::bigint as size_bytes", "n_gpus as ranks"), condition, name)
    ranks, width = found["ranks"].astype(np.int64), 1 if dtype == "int8" else 2
    axes = {"elements": found["size_bytes"].astype(np.int64) // width // ranks * ranks, "ranks": ranks}
    kind = np.full(len(ranks), list(KINDS).index(op))
    return Block(
        source=source, device=target_name(device), kind=f"{op} {dtype}", op="collective",
        dtypes={"dtype": FORMATS[dtype]}, attributes={"kind": KINDS[op]}, axes=axes, measured_s=found["best"],
        left_out=found["left_out"],
        sites=site_numbers(found["size_bytes"], ranks, kind), least_s=1e-6 * LEAST_US if source == "vidur" else 0.0,
    )  # fmt: skip


def _fixed(block: Block) -> tuple[str, ...]:
    """Return the scalars that a block says nothing about."""
    fixed = {"copy_s", "copy_ratio"}
    if block.attributes["kind"] != "send":
        fixed |= {"send_s", "send_ratio"}
    if block.dtypes["dtype"] != "bf16":
        fixed |= {"own_s", "own_hop_s", "one_shot_ratio", "two_shot_ratio", "far_ratio", "two_shot_s"}
    return tuple(sorted(fixed))


FAMILY = Family(
    name="collective",
    blocks=_blocks,
    files=(*FILES, "aic_deepep"),
    allowed=(  # not all-to-all, whose rows are kept for the interval of kinds without data
        *(
            f"aiconfigurator {device} {kind}"
            for device in ("a100_sxm_80gb", "b200_sxm", "h100_sxm", "l40s")
            for kind in ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
        ),
        "vidur h100_sxm send", "vidur a100_sxm_80gb send",
    ),
    scored=tuple(DEEPEP),
    fixed=_fixed,
    least_rows_count=LEAST_ROWS,
)  # fmt: skip
