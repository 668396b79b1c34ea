"""Record of capturing and analysing one model type: inputs, uncovered operators and CPU time, or why it failed."""

import resource
import sys
import time
from typing import Any

from nearpeak import analyze
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import MissingExtraError, NearpeakError
from nearpeak.frontends.huggingface.input_kinds import kinds_of
from nearpeak.frontends.huggingface.model_type import capture_model_type

LAYERS = 2
"""Layers of each stack, more where a type mixes more kinds of them."""
BATCH = 2
"""Two of everything: batch norm over one example has nothing to average."""


TARGET = "h100_sxm"
"""Device for which every capture is analysed."""


def architecture_record(name: str, steps: tuple[str, ...] = ("forward", "train")) -> dict[str, Any]:
    """Return what became of capturing the model type `name`: plain values only.

    A step that fails on few layers is tried again with all of them, as some stacks are read at a certain depth, and
    then with one example, as some code takes no more.
    """
    record: dict[str, Any] = {"type": name}
    for step in steps:
        start_s = time.process_time()
        attempt = _attempt(name, step, LAYERS, BATCH)
        for layers, batch in ((None, BATCH), (LAYERS, 1)):
            if not attempt["ok"] and not attempt["missing"]:
                other = _attempt(name, step, layers, batch)
                attempt = other if other["ok"] else attempt
        spent_s = time.process_time() - start_s - attempt.get("analyze_cpu_s", 0.0)
        record[step] = {**attempt, "cpu_s": spent_s}
    unit = 1 if sys.platform == "darwin" else 1024
    return record | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def _attempt(name: str, step: str, layers: int | None, batch: int) -> dict[str, Any]:
    try:
        workload = capture_model_type(name, CaptureOptions(step=step, batch=batch, layers=layers))
        start_s = time.process_time()
        analyze(workload, TARGET)
        analyzed_s = time.process_time() - start_s
    except NearpeakError as error:
        missing = isinstance(error, MissingExtraError)
        return {"ok": False, "cause": " ".join(str(error).split())[:300], "missing": missing}
    return {"ok": True, "layers": layers, "batch": batch, "analyze_cpu_s": analyzed_s, **_of_workload(workload)}


def _of_workload(workload: Workload) -> dict[str, Any]:
    shown = {described.split(" ")[0]: described for described in workload.origin["inputs"].split(", ")}
    taken = set(workload.origin["kinds"].split(", ")) - {""}
    used = {use.buffer for call in workload.calls for use in call.reads}
    read = {buffer.name for number, buffer in enumerate(workload.buffers) if number in used}
    return {
        "inputs": workload.origin["inputs"], "class": workload.origin["class"],
        "lacking": sorted(taken - kinds_of(name for name in shown if name in read)), "calls": len(workload.calls),
        "uncovered": dict(workload.uncovered_counts()),
        "guesses": [sentence for sentence in workload.assumptions if "assumed:" in sentence],
    }  # fmt: skip
