"""Host times of a software stack from measured steps of a user's own training plans."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from nearpeak.api.training.training_time import training_time
from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.stack import Stack, StackFit
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.systems.training.stack_fit import fit_stack

STEP_UNITS = {"step_s": 1.0, "step_ms": 1e-3}
"""Seconds per unit by the name of the column of step times."""
_FIELDS = {field.name: field for field in fields(TrainingPlan)}
_YES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step of a plan."""

    model: str
    """Name of the model, or path of its config.json."""
    plan: TrainingPlan
    """Plan."""
    step_s: float
    """Measured time of a step."""


def measured_steps(columns: Mapping[str, Sequence[Any]], where: str = "table") -> tuple[MeasuredStep, ...]:
    """Return the measured steps of a table: a model, the fields of a plan, and one column of step times.

    Raises:
        SpecError: a column is missing or unknown, or a row states no plan.

    >>> table = {"model": ["llama-3-8b"], "micro_batch": [1], "global_batch": [8], "sequence": [4096], "step_ms": [900]}
    >>> measured_steps(table)[0].step_s
    0.9
    """
    times = [name for name in columns if name in STEP_UNITS]
    if len(times) != 1 or "model" not in columns:
        raise SpecError(
            f"{where}: give a column `model` and one of {' or '.join(STEP_UNITS)}; it has {sorted(columns)}"
        )
    unknown = [name for name in columns if name not in _FIELDS and name not in (*times, "model")]
    if unknown:
        raise SpecError(f"{where}: column {unknown[0]!r} is no field of a plan; those are {', '.join(_FIELDS)}")
    needed = [name for name, field in _FIELDS.items() if field.default is MISSING and name not in columns]
    if needed:
        raise SpecError(f"{where}: column {needed[0]!r} is missing; a plan needs it")
    steps = []
    for place in range(len(columns["model"])):
        values = {
            name: _value(name, columns[name][place], f"{where}, row {place + 1}") for name in columns if name in _FIELDS
        }
        step_s = float(columns[times[0]][place]) * STEP_UNITS[times[0]]
        if not step_s > 0:
            raise SpecError(f"{where}, row {place + 1}: {times[0]} is {columns[times[0]][place]!r}; it must be above 0")
        steps.append(MeasuredStep(model=str(columns["model"][place]), plan=TrainingPlan(**values), step_s=step_s))
    return tuple(steps)


def _value(name: str, cell: Any, where: str) -> Any:
    """Return a cell as the field of a plan."""
    kind = _FIELDS[name].type
    if kind in (str, "str"):
        return str(cell)
    if kind in (bool, "bool"):
        word = str(cell).lower()
        if word not in _YES:
            raise SpecError(f"{where}: {name} is {cell!r}; it must be true or false")
        return _YES[word]
    if int(cell) != cell:
        raise SpecError(f"{where}: {name} is {cell!r}; it must be a whole number")
    return int(cell)


def calibrate_stack(steps: Sequence[MeasuredStep], cluster: Cluster, stack: Stack, source: str) -> StackFit:
    """Return `stack` with the host times that meet the measured steps best: at most two coefficients.

    Args:
        cluster: device and fabric of all steps; the number of devices follows from each plan.
        source: where the measurements come from.
    """

    def step_times(candidate: Stack) -> list[float]:
        return [
            training_time(step.model, step.plan, replace(cluster, device_count=step.plan.rank_count), candidate).step_s
            for step in steps
        ]

    return fit_stack(stack, [step.step_s for step in steps], step_times, source)


def stack_text(stack: Stack) -> str:
    """Return a stack as the text of its TOML file.

    >>> print(stack_text(Stack(name="mine", title="Mine", launch_s=9e-6, source="measured")).splitlines()[1])
    launch = "9 us"
    """
    lines = [
        f"title = {canonical_json(stack.title)}",
        f'launch = "{stack.launch_s * 1e6:.6g} us"',
        f'further = "{stack.further_launch_s * 1e6:.6g} us"',
        f"backward = {float(stack.backward_ratio)}",
        f'micro_batch = "{stack.micro_batch_s * 1e3:.6g} ms"',
        f'step = "{stack.step_s * 1e3:.6g} ms"',
        f'graph_launch = "{stack.graph_launch_s * 1e6:.6g} us"',
        f"captured = {str(stack.is_captured).lower()}",
        f"dropout = {str(stack.has_dropout).lower()}",
        f"confirmed = {str(stack.is_confirmed).lower()}",
        f"uncertainty = {float(stack.uncertainty_ratio)}",
        f"attention = {canonical_json(stack.attention)}",
        f"fusions = {canonical_json(stack.fusions)}",
        f"framework = {canonical_json(stack.framework)}",
        f"source = {canonical_json(stack.source)}",
    ]
    return "\n".join(lines) + "\n"
