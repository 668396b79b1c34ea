"""Expected time of a whole step on a device, with the host that submits its calls."""

from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.answers.step_prediction import StepPrediction
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload


def submitted_step(workload: Workload, target: Target) -> ExecutionTime | StepPrediction:
    """Return the time of a step as its source submits it: eager, unless it is compiled or built for a runtime.

    The kernels alone, one after the other, on devices without a host of their own.

    >>> from nearpeak.api.questions import case
    >>> from nearpeak.core.work.workload import Call
    >>> from nearpeak.targets import target_of
    >>> add = case("elementwise", elements=1024, function="add", dtype="fp16")
    >>> calls = (Call(case=add, operator="add", phase="forward"),) * 100
    >>> step = submitted_step(Workload(name="sums", step="forward", calls=calls), target_of("h100_sxm"))
    >>> f"{step.time_s * 1e3:.2f} ms"
    '1.10 ms'
    """
    from nearpeak.api.achievable_time import predict
    from nearpeak.api.questions import analyze

    analysis = analyze(workload, target)
    times = (time for time in analysis.targets[0].executions if time.mode == analysis.execution)
    return next(times, None) or predict(workload, target)
