"""Runner of an external program, `process:COMMAND`, that answers in JSON lines: C++, CUTLASS, other languages."""

import contextlib
import dataclasses
import json
import math
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import forward_arguments, too_large
from nearpeak.case_tensors.user_functions import EndedError
from nearpeak.core.runs.measurement import Environment, Fallback, Outcome, Timing
from nearpeak.core.runs.runner_protocols import Backend, Prepared, Reading, RunnerAbilities, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.machine.scratch_folders import scratch_folder
from nearpeak.measurement.timing.clocks import HostDefaults
from nearpeak.ops import OPS
from nearpeak.targets import CPU

PROTOCOL = 1
# 1: prepare, run, outputs, close; docs/guide/measurement.md describes each line.
FORMATS: Mapping[str, str] = {
    "fp64": "<f8", "fp32": "<f4", "fp16": "<f2", "bf16": "<u2", "int64": "<i8", "int32": "<i4", "int16": "<i2",
    "int8": "i1", "uint8": "u1", "bool": "u1",
}  # fmt: skip
"""How the files of tensors hold each format; bf16 as its 16 bits."""
LONGEST_ANSWER = 1 << 20
"""Characters of the longest answer that is read."""


class ProgramError(EndedError):
    """The program ended, or answered what the protocol does not know."""


class ExternalProcess(Backend):
    """One external program per case, which gets the case and files of inputs, and reports its own times."""

    name = "process"
    target = CPU
    abilities = RunnerAbilities(devices=("cpu", "cuda"), argument="COMMAND", dtypes=frozenset(FORMATS))

    def __init__(self, argument: str, timing: Timing) -> None:
        """Keep the command."""
        try:
            self._words, self._timing = shlex.split(argument), timing
        except ValueError as error:
            raise SpecError(f"process: {argument!r}: {str(error).lower()}; quote whole words") from None
        if not self._words:
            raise SpecError("process: the command is empty; write process:'./program --option'")
        if shutil.which(self._words[0]) is None:
            raise SpecError(f"process: {self._words[0]}: no such program; give a path, or one that is on PATH")

    def refusal(self, case: Case) -> str:
        """Return that the tensors are too large; empty when they are not."""
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Start the program, write the inputs and send it the case."""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder())
            program = _Program(self._words)
            stack.callback(program.close)
            start = time.perf_counter()
            files = _written(case, inputs[0], folder)
            request = {
                "do": "prepare", "protocol": PROTOCOL, "case": case.record(), "digest": case.digest,
                "thread_count": self._timing.thread_count, "folder": str(folder),
                "inputs": files,
            }  # fmt: skip
            answer, ledger = _understood(program, program.ask(request))
            close = stack.pop_all().close
        refresh = partial(_refreshed, program, files, inputs[0]) if answer.get("changes") is True else None
        return Prepared(
            runs=(_Run(program),), outputs=lambda _: _read(program, folder),
            algorithm=str(answer.get("algorithm", "")), ledger=ledger,
            phases_s={"build": time.perf_counter() - start}, close=close, refresh=refresh,
        )  # fmt: skip

    def timer(self) -> Timer:
        """Return the program's own clock."""
        return _ProgramTimer()

    def environment(self) -> Environment:
        """Return this machine; the program reports the rest as its algorithm."""
        return cpu_environment("numpy")


class _Program:
    """A running program and its two pipes."""

    def __init__(self, words: list[str]) -> None:
        self.name = shlex.join(words)[:100]
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", errors="replace"
            )
        except OSError as error:
            raise SpecError(f"process: {words[0]}: {error.strerror}") from None

    def broke(self, how: str, outcome: Outcome = Outcome.FAILED) -> ProgramError:
        """Return the error for a program that broke the protocol."""
        return ProgramError(f"{self.name} {how}", outcome)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the program's answer, one line of JSON."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]  # both are pipes
            self._process.stdin.flush()  # type: ignore[union-attr]
            line = self._process.stdout.readline(LONGEST_ANSWER)  # type: ignore[union-attr]
        except OSError:
            line = ""
        context = f"when asked to {request['do']}"
        if not line:
            raise self.broke(f"{_ending(self._process)} {context}", Outcome.CRASH)
        if len(line) == LONGEST_ANSWER:
            raise self.broke(f"answered more than {LONGEST_ANSWER} characters in one line {context}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise self.broke(f"answered {line.strip()[:100]!r} {context}, which is not JSON") from None
        if not isinstance(answer, dict):
            raise self.broke(f"answered {line.strip()[:100]!r} {context}, which is no JSON object")
        if "error" in answer:
            raise self.broke(f"says {str(answer['error'])[:200]!r} {context}")
        return answer

    def close(self) -> None:
        """Ask the program to exit, and kill it if it does not."""
        try:
            self._process.stdin.write('{"do": "close"}\n')  # type: ignore[union-attr]
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait(timeout=2)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


def _understood(program: _Program, answer: dict[str, Any]) -> tuple[dict[str, Any], tuple[Fallback, ...]]:
    """Return the answer to `prepare` of a program that runs the case, and its ledger."""
    if "unsupported" in answer:
        raise NotModelledError(f"{program.name}: {answer['unsupported'] or 'it does not say why'}")
    spoken = answer.get("protocol", PROTOCOL)
    if spoken != PROTOCOL:
        raise program.broke(f"speaks protocol {spoken!r}; this is protocol {PROTOCOL}")
    return answer, _ledger(program, answer.get("ledger", []))


def _ending(process: "subprocess.Popen[str]") -> str:
    """Return how a program that closed its output ended; kill it if it still runs."""
    try:
        code = process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "closed its output"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class _Run:
    """One call of the program."""

    def __init__(self, program: _Program) -> None:
        self.program = program

    def __call__(self) -> object:
        return self.program.ask({"do": "run", "call_count": 1})


class _ProgramTimer(HostDefaults):
    """The program's own clock: the time that it reports for some calls, and the host's time of its answer."""

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
        program = run.program
        time_s, cpu_s = _time(program, answer, "time_s", None), _time(program, answer, "cpu_s", 0.0)
        return Reading(time_s=time_s, cpu_s=cpu_s, host_s=host_s, result=answer)

    def flush(self) -> None:
        if self._last is not None:
            self._last.ask({"do": "flush"})


def _written(case: Case, arrays: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write the inputs as raw little-endian files, last dimension densest, and return their paths."""
    files = {}
    for name, spec in OPS[case.op].inputs(**forward_arguments(case)).items():
        path = folder / f"{name}.bin"
        _raw(arrays[name], spec.dtype).tofile(path)
        files[name] = {"file": str(path), "dtype": spec.dtype, "shape": list(spec.shape)}
    return files


def _refreshed(
    program: _Program, files: Mapping[str, Any], arrays: Mapping[str, Any], number: int, name: str, at: int
) -> None:
    """Write a changed element into its file, and tell the program its position; there is one set of inputs."""
    assert number == 0  # there is one set of inputs
    bits = _raw(np.asarray(arrays[name]).reshape(-1)[at : at + 1], files[name]["dtype"])
    with open(files[name]["file"], "r+b") as file:
        file.seek(at * bits.itemsize)
        file.write(bits.tobytes())
    program.ask({"do": "change", "input": name, "file": files[name]["file"], "at": at})


def _raw(array: Any, dtype: str) -> Any:
    """Return `array` in the bits of `dtype`.

    >>> _raw(np.array([1.0, -2.0]), "bf16").tolist()
    [16256, 49152]
    """
    if dtype == "bf16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")  # to the nearest, ties to even
    return np.ascontiguousarray(array).astype(FORMATS[dtype])


def _time(program: _Program, answer: Mapping[str, Any], name: str, otherwise: float | None) -> float:
    value = answer.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise program.broke(f"gives {name} as {value!r} when asked to run; it is the time of all calls in seconds")
    return float(value)


def _ledger(program: _Program, rows: Any) -> tuple[Fallback, ...]:
    try:
        ledger = tuple(Fallback(**row) for row in rows)
    except TypeError:
        ledger = None
    if ledger is None or not all(map(_is_well_typed, ledger)):
        form = '[{"node": "…", "ran_on": "…", "reason": "…"}]'
        raise program.broke(f"gives {json.dumps(rows)[:100]} as its ledger; wanted {form}")
    return ledger


def _is_well_typed(row: Fallback) -> bool:
    """Return whether each field of a row has its type; a ratio lies between 0 and 1."""
    fields: dict[str, Any] = dataclasses.asdict(row)
    ratios = [fields[name] for name in ("flop_ratio", "time_ratio") if fields[name] is not None]
    return (
        all(isinstance(fields[name], str) for name in ("node", "ran_on", "reason"))
        and all(type(ratio) in (int, float) and 0 <= ratio <= 1 for ratio in ratios)
        and type(fields["flop"]) is int
        and fields["flop"] >= 0
        and isinstance(fields["chosen"], bool)
    )


def _read(program: _Program, folder: Path) -> dict[str, Any]:
    """Return the outputs that the program has written."""
    outputs = program.ask({"do": "outputs", "folder": str(folder)}).get("outputs")
    if not isinstance(outputs, dict) or not all(isinstance(array, dict) for array in outputs.values()):
        form = '{"outputs": {"y": {"file", "dtype", "shape"}}}'
        raise program.broke(f"answered no outputs when asked for them; wanted {form}")
    return {name: _array(program, name, entry, folder) for name, entry in outputs.items()}


def _array(program: _Program, name: str, entry: Mapping[str, Any], folder: Path) -> Any:
    """Return one output from its file, relative to `folder`, which must have the stated size."""
    file, dtype, shape = (entry.get(key) for key in ("file", "dtype", "shape"))
    if not isinstance(dtype, str) or dtype not in FORMATS:
        raise program.broke(f"gives the dtype of {name} as {dtype!r}; known are {', '.join(FORMATS)}")
    if not isinstance(shape, list) or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise program.broke(f"gives the shape of {name} as {shape!r}; wanted a list of extents")
    path, kind = folder / str(file), np.dtype(FORMATS[dtype])
    if not path.is_file():
        raise program.broke(f"gives {file!r} as the file of {name}, but {path} is no file")
    wanted, size = math.prod(shape) * kind.itemsize, path.stat().st_size
    if size != wanted:
        raise program.broke(f"wrote {size} bytes for {name}; {dtype} of shape {shape} takes {wanted}")
    raw = np.fromfile(path, kind)
    if dtype == "bf16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.reshape(shape)


RUNNER = ExternalProcess
