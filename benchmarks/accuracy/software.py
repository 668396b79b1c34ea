"""Fits what frameworks take against the best of them: `python -m benchmarks.accuracy.software CORPUS`.

Rows of one framework alone are read as the families read rows of all. Folds 0 and 1 set the ratios, 2 the intervals; 3
is printed as the score, beside that of the best of all frameworks on the same rows.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, folds
from nearpeak.core.answers.prediction import SOFTWARE
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.intervals import shortest
from nearpeak.prediction.software_ratio import DECODE, FILE
from nearpeak.targets import target_of

TABLES = {
    "gemm": ("aic_gemm",), "attention": ("aic_decode_attention", "aic_context_attention"), "grouped_gemm": ("aic_moe",),
}  # fmt: skip
"""Files of the corpus by family: those whose rows name a framework."""
_PYTORCH = {"layer_products": ("llmservingsim_layers",), "modules": ("llmservingsim_layers",)}
"""The same of layers that PyTorch ran call by call, as their source's name of the software does not say."""
_LEAST_ROWS, _KNOTS, _HELD_OUT = 150, 7, 3
_STEEPEST = -0.9
"""Least slope of a ratio over the time, in logarithms: frameworks' times rise with cases, too."""
_HEAD = """# Written by `python -m benchmarks.accuracy.software CORPUS`: time of one framework over the predicted best
# of all, as logarithms at predicted times, and the ends of its 90 % interval. Source: ai-dynamo/aiconfigurator 095f58a
# (Apache-2.0), newest version of each framework; of PyTorch, whose stream kernels are those of whole modules, each of
# the mean time of its kernels: casys-kaist/LLMServingSim 5daddb2 (MIT).
"""


def main() -> None:
    """Print one line per block and framework; write the file that ships."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.software", description=__doc__)
    parser.add_argument("corpus", type=Path)
    options = parser.parse_args()
    entries: list[str] = []
    print("| group | device | software | rows | of the best | its own | bias | covered |")
    print("|---|---|---|---|---|---|---|---|")
    for name, tables in TABLES.items():
        for software in SOFTWARE:
            with tempfile.TemporaryDirectory() as folder:
                _write_part(options.corpus, Path(folder), tables, software)
                for (device, group), blocks in _grouped(name, Path(folder)).items():
                    entries += _entry(device, group, blocks, software)
    for name in _PYTORCH:
        for (device, group), blocks in _grouped(name, options.corpus, "llmservingsim").items():
            entries += _entry(device, group, blocks, "pytorch")
    FILE.write_text(_HEAD + "\n".join(entries), encoding="utf-8")


def _write_part(corpus: Path, folder: Path, tables: tuple[str, ...], software: str) -> None:
    """Write the rows of one framework as a corpus of its own."""
    import duckdb

    for table in tables:
        source, sink = corpus / f"{table}.parquet", folder / f"{table}.parquet"
        rows = f"select * from read_parquet('{source}') where split_part(software, ' ', 1) = '{software}'"
        duckdb.sql(rows).write_parquet(str(sink))


def _grouped(name: str, folder: Path, source: str = "") -> dict[tuple[str, str], list[Block]]:
    """Return the blocks of a family by device and group of formats under its form's name, decode steps apart.

    Args:
        source: project whose rows were not fitted and count on devices with scalars of their own.
    """
    found: dict[tuple[str, str], list[Block]] = {}
    for family in families(name):
        for block in family.blocks(folder):
            known = _is_known if block.source == source else Family.is_named
            if len(block.measured_s) >= _LEAST_ROWS and known(family, block):
                group = f'{family.model.name}."{family.group(block)}{DECODE * block.kind.startswith("decode")}"'
                found.setdefault((block.device, group), []).append(block)
    return found


def _is_known(family: Family, block: Block) -> bool:
    """Return whether the scalars that answer for a block were fitted on its device."""
    return calibration_for(target_of(block.device), family.model, block.columns(np.arange(1))).distance_count == 0


def _entry(device: str, group: str, blocks: list[Block], software: str) -> list[str]:
    """Return the entry of a device, group and framework as TOML, and print its score."""
    columns: list[list[Any]] = [[], [], []]
    for block in blocks:
        rows = np.arange(len(block.measured_s))
        found = block.predicted_s(rows)[0]
        mean_s = found / (sum(count for count, _ in block.kernels) or 1)
        values = np.log(mean_s), np.log(block.measured_s / found), folds(block)
        for column, each in zip(columns, values, strict=True):
            column.append(each)
    logs, apart, fold = map(np.concatenate, columns)
    knots, ratios = _ratios(logs[fold <= 1], apart[fold <= 1])
    rest = apart - np.interp(logs, knots, ratios)
    second, last = rest[fold == 2], fold == _HELD_OUT
    if len(second) < _LEAST_ROWS // 4:
        return []
    low, high = shortest(np.exp(second), int(np.ceil(0.905 * (len(second) + 1))))
    errors = [100 * np.abs(np.exp(-each[last]) - 1).mean() for each in (apart, rest)]
    covered = ((rest[last] >= np.log(low)) & (rest[last] <= np.log(high))).mean()
    bias = 100 * (np.exp(-rest[last]) - 1).mean()
    print(
        f"| {group} | {device} | {software} | {last.sum()} | {errors[0]:.1f} | {errors[1]:.1f} "
        f"| {bias:+.1f} | {100 * covered:.0f} % |", flush=True,
    )  # fmt: skip
    return [
        f"[{group}.{device}.{software}]",
        f"times_s = {[float(f'{np.exp(knot):.3g}') for knot in knots]}",
        f"ratio_logs = {[round(float(ratio), 3) for ratio in ratios]}",
        f"interval = [{min(low, 1.0):.4f}, {max(high, 1.0):.4f}]", f"row_count = {int((fold <= 1).sum())}", "",
    ]  # fmt: skip


def _ratios(logs: Any, apart: Any) -> tuple[Any, Any]:
    """Return knots over the logarithm of predicted time, and the median of measured over predicted there."""
    edges = np.unique(np.quantile(logs, np.linspace(0, 1, _KNOTS + 1)))
    place = np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, len(edges) - 2)
    filled = [one for one in range(len(edges) - 1) if (place == one).sum()]
    knots = np.array([np.median(logs[place == one]) for one in filled])
    ratios = np.array([np.median(apart[place == one]) for one in filled])
    for one in range(1, len(ratios)):
        ratios[one] = max(ratios[one], ratios[one - 1] + _STEEPEST * (knots[one] - knots[one - 1]))
    return knots, ratios


if __name__ == "__main__":
    main()
