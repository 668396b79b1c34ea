"""Published rows of edge boards as questions: step, board with its clocks, time, power; or the reason why not."""

import csv
import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks._edge_models import MODELS, built
from nearpeak.core.work.engine_choice import EngineChoice
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.prediction.engine.engine_kernels import EngineKernels, engine_kernels

Row = Mapping[str, str]
_SAMPLES = os.environ.get("NEARPEAK_SAMPLES")
_SHARED = Path(_SAMPLES).parent if _SAMPLES else Path(__file__).resolve().parents[2] / "shared"
FILE = _SHARED / "edge/measured.csv.gz"
FULL_EMC_MHZ = {"jetson_agx_orin": 3199, "jetson_orin_nx": 3199, "jetson_orin_nano": 3199, "jetson_xavier_nx": 1866,
                "jetson_agx_xavier": 2133, "jetson_nano": 1600}  # fmt: skip
"""Memory clock at which a board has its documented rate. Source: nvpmodel files, see the targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """A figure of TensorRT on the GPU of a board."""

    row: Row
    """The row."""
    workload: Workload
    """The step as the engine runs it."""
    kernels: EngineKernels
    """Its kernels."""
    target: Target
    """Board at the clocks of the row."""
    batch: int
    """Items of a run."""
    measured_s: float
    """Time of a run."""
    is_graph: bool
    """Whether kernels were submitted as one graph: the code of MLPerf's submitters does that (use_graphs)."""

    @property
    def pair(self) -> tuple[str, str]:
        """Board and model."""
        return self.row["target"], self.row["model"]

    @property
    def family(self) -> str:
        """Family of the model by the begin of its name: YOLO versions, ResNet-50 and the like."""
        return self.row["model"][:5]

    @property
    def power_w(self) -> float | None:
        """Power at the wall; none where it is not stated."""
        return float(self.row["power_w"]) if self.row["power_scope"].startswith("wall") else None


def all_rows() -> list[Row]:
    """Return the published rows."""
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def engine_rows() -> Iterator[EngineRow]:
    """Yield the rows of TensorRT on a GPU whose model is written here and whose clocks are stated.

    Left out, as their work is not stated: sequences of data (BERT, RNN-T), sliding windows (3D-UNet), language models;
    figures with other work in them (Roboflow's server), and those whose source says that they are capped.
    """
    for row in all_rows():
        if row["engine"] != "GPU" or "TensorRT" not in row["runtime"] or row["model"] not in MODELS:
            continue
        if not row["gpu_mhz"] or "capped" in row["note"] or "Roboflow" in row["runtime"]:
            continue
        batch = int(float(row["batch"]))
        seconds = float(row["latency_ms"]) / 1e3 if row["latency_ms"] else batch / float(row["items_per_s"])
        workload = _lowered(row["model"], batch, row["precision"])
        yield EngineRow(
            row=row, workload=workload, kernels=engine_kernels(workload.case_counts()), target=_board(row),
            batch=batch, measured_s=seconds, is_graph="MLPerf" in row["source"],
        )  # fmt: skip


@cache
def _captured(model: str, batch: int) -> Workload:
    import torch

    import nearpeak

    module, (height, width) = built(model)
    return nearpeak.capture(module, inputs=(torch.zeros(batch, 3, height, width),))


@cache
def _lowered(model: str, batch: int, precision: str) -> Workload:
    from nearpeak.frontends.inference_engine.engine_lowering import lowered

    return lowered(_captured(model, batch), EngineChoice(name="tensorrt", dtype=precision))


def _board(row: Row) -> Target:
    """Return the board of a row at its clocks."""
    from nearpeak.targets import target_of

    name, edits = row["target"], [f'clock.max="{float(row["gpu_mhz"])} MHz"']
    full = FULL_EMC_MHZ[name]
    if row["emc_mhz"] and float(row["emc_mhz"]) < full - 1:
        bandwidth = (target_of(name).dram.bandwidth_bytes_per_s or 0.0) / 1e9 * float(row["emc_mhz"]) / full
        edits.append(f'dram.bandwidth="{bandwidth:.4f} GB/s"')
    return target_of(name, edits)
