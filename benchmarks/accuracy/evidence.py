"""What bounds the error of a block, computed: noise, choice of framework, neighbours, the device's own fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.choices import by_neighbours
from benchmarks.accuracy.families.conv import miopen_kernels
from benchmarks.accuracy.family import Block, folds
from benchmarks.accuracy.noise import ALLOWANCE, Noise
from benchmarks.accuracy.records import KIN, STRANGE, Record
from benchmarks.accuracy.scores import HELD_OUT, error_of
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

BY_VALUE = {
    "width": (("covered", "covered", True), ("shortest constant", "least_width", False)),
    "covered": (("half width over the mean error", "width", False), ("mean error", "mean", True)),
    "decided": (("beaten, classical algorithms", "beaten_classical", True), ("beaten, any", "beaten_any", True)),
    "beaten": (("beaten, classical algorithms", "beaten_classical", True), ("beaten, any", "beaten_any", True)),
    "beaten_classical": (("beaten, any algorithm", "beaten_any", True),),
    "weaker": (
        ("all outputs charged", "weaker_charged", True), ("least over the roofline", "least_charged", False),
        ("all outputs charged, one clock", "weaker_clocked", True),
    ),
    "mean": (("neighbours' readings", "neighbours", True), ("between software", "between", True)),
    "over_roofline": (("mean error", "mean", True),),
}  # fmt: skip
"""Figures of the record itself that belong beside a figure: head, name, whether in percent."""
FILES = {
    "gemm": "aic_gemm", "decode_attention": "aic_decode_attention", "context_attention": "aic_context_attention",
    "mla_context": "aic_mla", "moe": "aic_moe",
}  # fmt: skip
"""File whose noise is that of a block, by the first word of its kind; products have their format there."""
FEW = 128
"""Rows or columns of a result up to which old libraries leave most of a device idle, as they do not split k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that says how near any prediction of a block could come."""

    corpus: Path
    """Folder of the measurements."""
    noises: Mapping[tuple[str, str, str], Noise]
    """Noise by file, device and format."""
    blocks: Mapping[str, Block]
    """Blocks by name."""
    own: Mapping[tuple[str, str], float]
    """Mean error on held-out sites where the device itself was fitted, by family and name of the block."""
    seen: Mapping[tuple[str, str], float]
    """Mean error of blocks of a source that no board was fitted on, on boards that were, by family and name."""

    def noise_of(self, name: str) -> Noise | None:
        """Return the noise of a block; none where no shape was measured with two versions."""
        source, device, first, *rest = [*name.split(), "", ""][:5]
        if source != "aiconfigurator":
            return None
        file, dtype = (FILES[first], rest[0]) if first in FILES else (FILES["gemm"], first)
        return self.noises.get((file, device, dtype))

    def allowed_ratio(self, name: str) -> float:
        """Return what a bar that allows for noise takes for a block; 0 where nothing is known."""
        found = self.noise_of(name)
        return 0.0 if found is None else ALLOWANCE * found.size_ratios[0]

    def cells(self, record: Record, value: str) -> dict[str, str]:
        """Return what is known about a figure of a record, by the head of its column."""
        found, block = self.noise_of(record.name), self.blocks.get(record.name)
        cells = {
            head: _shown(record.values[name], is_percent=is_percent)
            for head, name, is_percent in BY_VALUE.get(value, ())
            if name in record.values
        }
        if found is not None:
            cells[f"noise x {ALLOWANCE}"] = _shown(ALLOWANCE * found.size_ratios[0])
            cells["frameworks apart"] = "–" if found.apart_ratio is None else _shown(found.apart_ratio)
        if block is not None and record.origin == "sites":
            cells |= _neighbours(self.corpus, block)
        if (own := self.own.get((record.family, record.name))) is not None and record.origin != "sites":
            cells["own fit"] = _shown(own)
        if block is not None and record.origin in (KIN, STRANGE):
            cells |= _other_boards(block) | self._of_fitted_board(record)
        return cells

    def _of_fitted_board(self, record: Record) -> dict[str, str]:
        """Return how far the same source's rows are from predictions for the boards that were fitted on others."""
        source, _, kind = record.name.split(" ", 2)
        alike = {
            name.split(" ", 2)[1]: mean for (family, name), mean in self.seen.items()
            if family == record.family and name.startswith(f"{source} ") and name.endswith(f" {kind}")
        }  # fmt: skip
        said = ", ".join(f"{_shown(mean)} ({device})" for device, mean in alike.items())
        return {"fitted board, same source": said} if said else {}


def _shown(value: float, *, is_percent: bool = True) -> str:
    return f"{100 * value:.1f} %" if is_percent else f"{value:.2f}"


def _other_boards(block: Block) -> dict[str, str]:
    """Return the error that one factor for the board leaves, and that of products with many rows and columns."""
    every = np.arange(len(block.measured_s))
    found = predict_table(block.table(every), target_of(block.device), block.setting_of(every)).predicted_s
    whole = error_of(found * np.median(block.measured_s / found), block.measured_s)
    cells = {} if whole is None else {"one factor": _shown(whole.mean_ratio)}
    if {"m", "n"} <= block.axes.keys():
        many = np.minimum(block.axes["m"], block.axes["n"]) > FEW
        part = error_of(found[many], block.measured_s[many]) if many.any() else None
        cells |= {} if part is None else {f"both sides above {FEW}": _shown(part.mean_ratio)}
    return cells


def _neighbours(corpus: Path, block: Block) -> dict[str, str]:
    """Return the error of predictions times what was missed on the nearest fitted shapes; of those with one solver."""
    every, rows = np.arange(len(block.measured_s)), np.flatnonzero(folds(block) == HELD_OUT)
    found = predict_table(block.table(every), target_of(block.device), block.setting_of(every)).predicted_s
    times = {"neighbours": by_neighbours(block, found)}
    if block.source == "miopen":
        times["same solver"] = by_neighbours(block, found, miopen_kernels(corpus, block)[0])
    errors = {name: error_of(one, block.measured_s[rows]) for name, one in times.items()}
    return {name: _shown(one.mean_ratio) for name, one in errors.items() if one is not None}
