"""Recurrences over a state: gated delta nets and Kimi delta attention, which no coefficient was fitted on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.accuracy.family import (
    EAGER,
    HOT,
    OLD,
    Block,
    Family,
    best_rows,
    lacks,
    reasons,
    site_numbers,
    target_name,
)
from benchmarks.accuracy.family import kinds_of as distinct

DECAYS = {"gdn": "head", "kda": "channel"}
"""Decay by the corpus' word of a rule: gated delta nets per head, Kimi delta attention per channel."""
PHASES = {"context": "false", "generation": "true"}
"""Phases that are read, and whether they begin with a state; `verify` is of drafts, whose states all are kept."""
_SMALL = ("conv1d",)
"""Parts of names of the short convolutions, which have no operator here."""
STATES = {"bfloat16_state_bfloat16": "bf16", "bfloat16_state_float32": "fp32"}
"""Format of the state by the corpus' name."""
_AXES = ("num_v_heads as heads", "head_k_dim as key_dim", "head_v_dim as dim", "num_k_heads as key_heads")


def _blocks(folder: Path) -> Iterator[Block]:
    path = folder / "aic_linear_attention.parquet"
    rule, is_short = "split_part(op, ':', 1)", f"contains(op, '{_SMALL[0]}')"
    for kind in distinct(
        path, "source", "device", rule, "phase", is_short,
        known=lambda *one: one[2] in DECAYS and one[3] in PHASES and not one[4],
    ):  # fmt: skip
        where = f"source = ? and device = ? and {rule} = ? and phase = ? and {is_short} = ? and {lacks(OLD | EAGER)}"
        axes = ("batch", "seq_len as tokens", *_AXES)
        yield _block(path, axes, where, kind, (kind[2], PHASES[kind[3]] == "true", "fp32"))
    path = folder / "aiter_gdr_decode.parquet"
    for kind in distinct(path, "source", "device", "dtype", known=lambda *one: one[2] in STATES):
        where = f"source = ? and device = ? and dtype = ? and {lacks(OLD | EAGER)}"
        yield _block(path, ("b as batch", "sq as tokens", *_AXES), where, kind, ("gdn", True, STATES[kind[2]]))


def _block(
    path: Path, axes: tuple[str, ...], where: str, kind: tuple[str, ...], case: tuple[str, bool, str]
) -> Block:  # fmt: skip
    rule, is_begun, state = case
    names = [axis.rpartition(" ")[2] for axis in axes]
    found = best_rows(path, axes, where, kind, names)
    hot = (found["flags"] & HOT) > 0
    columns = {name: found[name][~hot].astype(np.int64) for name in names}
    return Block(
        source=kind[0], device=target_name(kind[1]), kind=f"{rule} {'decode' if is_begun else 'prefill'} {state}",
        op="delta_rule", dtypes={"dtype": "bf16", "state_dtype": state}, axes=columns,
        attributes={"decay": DECAYS[rule], "begun": is_begun, "ended": True}, measured_s=found["best"][~hot],
        left_out=reasons(found, hot), sites=site_numbers(*(columns[name] for name in names)),
    )  # fmt: skip


FAMILY = Family(
    name="linear_attention",
    form_name="stream",
    blocks=_blocks,
    files=("aic_linear_attention", "aiter_gdr_decode"),
    allowed=(),
)
