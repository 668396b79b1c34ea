"""V8, determinism: the same inputs give the same results at other alignments, in repeated calls and graph replays."""

from dataclasses import replace

import numpy as np

from nearpeak.case_tensors.memory_placement import copy_of
from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.ops import OPS
from nearpeak.validation.comparison.output_comparison import comparable, values_of
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.running.aliased_outputs import shapes_of
from nearpeak.validation.running.implementation_run import RunRecord, imported_torch, run
from nearpeak.validation.running.trial import Trial

RUNS = 3


def determinism(trial: Trial) -> CheckResult:
    """Return whether runs at other alignments differ by more than the bound, and record whether they differ at all.

    A captured graph is replayed with other inputs at the same addresses; a runner with streams is called again while
    the device does other work.
    """
    if OPS[trial.case.op].draws:
        return CheckResult(check="V8", status=SKIPPED, reason="the operator draws random numbers")
    draw = trial.draws[0]
    runs = [trial.runs[0], *(trial.answer(draw, shift=shift) for shift in range(1, RUNS))]
    if any(ran.error or not comparable(ran.outputs, draw.expected) for ran in runs):
        error = next((ran.error for ran in runs[1:] if ran.error), "")
        if error and not runs[0].error:
            return CheckResult(check="V8", status="NONDET", reason=f"a later call fails: {error}")
        return CheckResult(check="V8", status=SKIPPED, reason="V1 failed")
    same = _repeated(draw, runs)
    if same.failed:
        return same
    further = [*_replayed(trial), *_beside(trial)]
    wrong = next((result for result in further if result.failed), None)
    figures = {**same.figures, **{key: value for result in further for key, value in result.figures.items()}}
    return wrong or CheckResult(check="V8", status=PASS, figures=figures)


def _repeated(draw: Draw, runs: list[RunRecord]) -> CheckResult:
    """Compare later runs with the first one."""
    first, bitwise = values_of(runs[0].outputs), True
    for ran in runs[1:]:
        again = values_of(ran.outputs)
        for name, expected in draw.expected.items():
            same = (again[name] == first[name]) | (np.isnan(again[name]) & np.isnan(first[name]))
            bitwise &= bool(same.all())
            with np.errstate(all="ignore"):
                apart = ~same & ~(np.abs(again[name].astype(complex) - first[name]) <= expected.bound)
            if apart.any():
                where = tuple(int(i) for i in np.argwhere(apart)[0])
                reason = f"{name}{list(where)} is {first[name][where]}, and {again[name][where]} when asked again"
                return CheckResult(check="V8", status="NONDET", reason=reason)
    return CheckResult(check="V8", status=PASS, figures={"bitwise": "yes" if bitwise else "no"})


def _replayed(trial: Trial) -> list[CheckResult]:
    """Replay the graph captured for the first inputs: with other inputs, with the first again, and once more."""
    captured, first = trial.implementation.captured, trial.draws[0]
    if captured is None:
        return []
    others = [draw for draw in trial.draws[1:] if shapes_of(draw) == shapes_of(first)][:1]
    try:
        torch = imported_torch()
        replay = captured({name: copy_of(torch, tensor) for name, tensor in first.tensors.items()}, first.arguments)
    except (NotImplementedError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return [CheckResult(check="V8", status=PASS, figures={"replay": f"cannot be captured: {reason}"})]
    results = []
    for draw in (*others, first, *others):
        ran = RunRecord(outputs={name: value.detach().cpu().clone() for name, value in replay(draw.tensors).items()})
        results.append(_as_nondeterminism(trial, draw, ran, f"replay with {draw.distribution} inputs"))
    return [*results, CheckResult(check="V8", status=PASS, figures={"replay": f"{len(results)} times"})]


def _beside(trial: Trial) -> list[CheckResult]:
    """Call the implementation while the device does other work."""
    concurrent, draw = trial.implementation.concurrent, trial.draws[0]
    if concurrent is None:
        return []
    beside, outputs = replace(trial.implementation, call=concurrent), trial.templates(draw)
    ran = run(beside, draw.tensors, draw.arguments, outputs=outputs)
    if ran.error:
        return [CheckResult(check="V8", status="NONDET", reason=f"beside other work: {ran.error}")]
    return [
        _as_nondeterminism(trial, draw, ran, "beside other work"),
        CheckResult(check="V8", status=PASS, figures={"concurrent": "yes"}),
    ]


def _as_nondeterminism(trial: Trial, draw: Draw, ran: RunRecord, where: str) -> CheckResult:
    """Compare a repeated call with the oracle: a result that was right before and is wrong now is nondeterministic."""
    ran = trial.with_ties_broken(ran, draw.tensors, {name: expected.values for name, expected in draw.expected.items()})
    if not comparable(ran.outputs, draw.expected):
        return CheckResult(check="V8", status="NONDET", reason=f"{where}: other outputs than before")
    result = judged("V8", ran.outputs, draw, where, trial.draws)
    return replace(result, status="NONDET") if result.failed else result


CHECK = determinism
