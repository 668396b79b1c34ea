"""Runs cases in a program of the user's, `process:COMMAND`, which answers JSON lines: C++, CUTLASS, other languages."""

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, Fallback, Prepared, Reading, RunnerAbilities, Timer, Timing
from nearpeak.errors import MeasureError, NotModelledError, SpecError
from nearpeak.measure.environment import cpu_environment
from nearpeak.measure.inputs import forward_arguments, too_large
from nearpeak.ops import OPS
from nearpeak.targets import CPU

PROTOCOL = 1
# 1: prepare, run, outputs, close; docs/explain/measurement.md describes each line.
FORMATS: Mapping[str, str] = {
    "fp64": "<f8", "fp32": "<f4", "fp16": "<f2", "bf16": "<u2", "int64": "<i8", "int32": "<i4", "int16": "<i2",
    "int8": "i1", "uint8": "u1", "bool": "u1",
}  # fmt: skip
"""How the files of tensors hold each format; bf16 as its 16 bits."""


class ExternalProcess:
    """One program for one case: it is told the case and where its inputs lie, and says its own times."""

    name = "process"
    target = CPU
    abilities = RunnerAbilities(devices=("cpu", "cuda"), argument="COMMAND", dtypes=frozenset(FORMATS))

    def __init__(self, argument: str, timing: Timing) -> None:
        """Keep the command."""
        self._words, self._timing = shlex.split(argument), timing
        if not self._words:
            raise SpecError("process: the command is empty; write process:'./program --option'")

    def refusal(self, case: Case) -> str:
        """Return that the tensors are too large; empty when they are not."""
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Start the program, write the inputs and tell it the case."""
        folder = tempfile.TemporaryDirectory(prefix="nearpeak-")
        program = _Program(self._words)
        start = time.perf_counter()
        request = {
            "do": "prepare", "protocol": PROTOCOL, "case": case.record(), "digest": case.digest,
            "thread_count": self._timing.thread_count, "folder": folder.name,
            "inputs": _written(case, inputs[0], Path(folder.name)),
        }  # fmt: skip
        answer = program.ask(request)
        if "unsupported" in answer:
            program.close()
            folder.cleanup()
            raise NotModelledError(f"{self._words[0]}: {answer['unsupported']}")

        def close() -> None:
            program.close()
            folder.cleanup()

        ledger = tuple(Fallback(**row) for row in answer.get("ledger", ()))
        return Prepared(
            runs=(_Run(program),),
            outputs=lambda _: _read(program, Path(folder.name)),
            algorithm=str(answer.get("algorithm", "")), ledger=ledger,
            phases_s={"build": time.perf_counter() - start}, close=close,
        )  # fmt: skip

    def timer(self) -> Timer:
        """Return the program's own clock."""
        return _ProgramTimer()

    def environment(self) -> Environment:
        """Return this machine; the program says the rest as its algorithm."""
        return cpu_environment("numpy")


class _Program:
    """A running program and its two pipes."""

    def __init__(self, words: list[str]) -> None:
        self._name = words[0]
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise SpecError(f"process: {self._name}: {error.strerror}") from None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the program's answer, one line of JSON."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]  # both are pipes
            self._process.stdin.flush()  # type: ignore[union-attr]
            line = self._process.stdout.readline()  # type: ignore[union-attr]
        except OSError:
            line = ""
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{self._name} ended with exit code {code} when asked to {request['do']}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise RuntimeError(f"{self._name} answered {line.strip()[:100]!r}, which is not JSON") from None
        if not isinstance(answer, dict) or "error" in answer:
            raise RuntimeError(f"{self._name}: {answer['error'] if isinstance(answer, dict) else answer!r}")
        return answer

    def close(self) -> None:
        """Ask the program to end, and end it if it does not."""
        try:
            self._process.stdin.write('{"do": "close"}\n')  # type: ignore[union-attr]
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait(timeout=2)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class _Run:
    """One call of the program."""

    def __init__(self, program: _Program) -> None:
        self.program = program

    def __call__(self) -> object:
        return self.program.ask({"do": "run", "call_count": 1})


class _ProgramTimer:
    """The clock of the program: what it says that some calls took, and beside it how long it took to answer."""

    name = "program"
    mode = "device"
    resolution_s = 1e-9
    flush_policy = "program"

    def __init__(self) -> None:
        self._last: _Program | None = None

    def read(self, run: Callable[[], object], call_count: int) -> Reading:
        assert isinstance(run, _Run)  # the runner made it
        self._last = run.program
        start = time.perf_counter()
        answer = run.program.ask({"do": "run", "call_count": call_count})
        host_s = time.perf_counter() - start
        if not isinstance(answer.get("time_s"), (int, float)):
            raise MeasureError("process: the answer to run has no time_s; it is the time of all calls in seconds")
        cpu_s = float(answer.get("cpu_s", 0.0))
        return Reading(time_s=float(answer["time_s"]), cpu_s=cpu_s, host_s=host_s, result=answer)

    def flush(self) -> None:
        if self._last is not None:
            self._last.ask({"do": "flush"})


def _written(case: Case, arrays: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write the inputs as raw files, little-endian, last dimension densest, and return where they lie."""
    found = {}
    for name, spec in OPS[case.op].inputs(**forward_arguments(case)).items():
        path = folder / f"{name}.bin"
        _raw(arrays[name], spec.dtype).tofile(path)
        found[name] = {"file": str(path), "dtype": spec.dtype, "shape": list(spec.shape)}
    return found


def _raw(array: Any, dtype: str) -> Any:
    """Return `array` in the bits of `dtype`.

    >>> _raw(np.array([1.0, -2.0]), "bf16").tolist()
    [16256, 49152]
    """
    if dtype == "bf16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")  # to the nearest, ties to even
    return np.ascontiguousarray(array).astype(FORMATS[dtype])


def _read(program: _Program, folder: Path) -> dict[str, Any]:
    """Return the outputs that the program has written."""
    found = {}
    for name, said in program.ask({"do": "outputs", "folder": str(folder)})["outputs"].items():
        raw = np.fromfile(said["file"], FORMATS[said["dtype"]])
        if said["dtype"] == "bf16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        found[name] = raw.reshape(said["shape"])
    return found


RUNNER = ExternalProcess
