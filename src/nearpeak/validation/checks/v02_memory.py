"""V2, memory: no out-of-bounds write, no changed input, and no output that aliases an input or a later output."""

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.ops import OPS
from nearpeak.validation.comparison.output_comparison import comparable
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.running.aliased_outputs import overwritten
from nearpeak.validation.running.implementation_run import pytorch_of, run
from nearpeak.validation.running.trial import Trial


def memory(trial: Trial) -> CheckResult:
    """Return whether guard bands are intact, inputs unchanged, and outputs not aliased.

    An input that is also an output may change, unless the case states that it is not updated in place. Only operators
    that move data must return new memory: others may return an input that equals the result, as PyTorch's compiled
    dropout does outside of training. A later call must not overwrite the outputs of an earlier one.
    """
    moves = OPS[trial.case.op].family == "movement"
    rounds = list(zip(trial.draws, trial.runs, strict=True))
    for draw, ran in rounds:
        if ran.overrun:
            reason = f"{draw.distribution} inputs: wrote beside {', '.join(ran.overrun)}"
            return CheckResult(check="V2", status="OOB_WRITE", reason=reason)
        changed = [name for name in ran.changed if not _updated(draw, name)]
        if changed:
            reason = f"{draw.distribution} inputs: changed {', '.join(changed)}"
            return CheckResult(check="V2", status="MUTATED_INPUT", reason=reason)
        aliased = [pair for pair in ran.shared if not _updated(draw, pair[1])]
        # PyTorch's own implementation may return its input too, as a collective of one rank does.
        if moves and aliased and not run(pytorch_of(trial.case), draw.tensors, draw.arguments).shared:
            output, name = aliased[0]
            reason = f"{draw.distribution} inputs: {output} is the memory of {name}, where a tensor of its own is due"
            return CheckResult(check="V2", status="ALIASED_OUTPUT", reason=reason)
    if any(ran.error or not comparable(ran.outputs, draw.expected) for draw, ran in rounds):
        return CheckResult(check="V2", status=SKIPPED, reason="V1 failed")  # without all outputs, aliasing is unknown
    if lost := overwritten(trial.implementation, trial.draws):
        reason = f"a later call changes {', '.join(lost)} of an earlier one, where memory of its own is due to each"
        return CheckResult(check="V2", status="ALIASED_OUTPUT", reason=reason)
    return CheckResult(check="V2", status=PASS)


def _updated(draw: Draw, name: str) -> bool:
    """Return whether the operator updates the input `name` by its definition."""
    return name in draw.expected and bool(draw.arguments.get("in_place", True))


CHECK = memory
