"""Command `nearpeak validate`: correctness of an implementation against the numerics contract."""

import dataclasses
import json as jsonlib
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import listed_cases
from nearpeak.cli.shared.completion import operators, runners
from nearpeak.cli.shared.options import seconds_of
from nearpeak.errors import IncorrectError, MissingExtraError, NotModelledError, SpecError
from nearpeak.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nearpeak.core.runs.validation import Validation
    from nearpeak.core.work.case import Case
    from nearpeak.validation import Implementation

WORDS = typer.Argument(
    None,
    metavar="OP AXIS=EXTENT… | FILE",
    help="One case in words, a suite, a table, or a saved workload.",
    autocompletion=operators,
)
_LIMIT = "600 s"
"""Wall time that a function has where no other is given."""


def validate(
    words: list[str] | None = WORDS,
    runner: str = typer.Option(
        "", "--runner", help="A runner's own way to compute it; torch_cpu by default.", autocompletion=runners
    ),
    implementation: str = typer.Option(
        "", "--implementation", help="module:function or file.py:function, (tensors by name, **axes) → outputs by name."
    ),
    emulate: str | None = typer.Option(
        None,
        "--emulate",
        help="Emulated hardware in place of a runner: hopper_fp8, or any of bits=14 group=32 promotion=128 "
        "rounding=toward_zero (how sums of products are accumulated), factors=mxfp4, vector=bf16.",
    ),
    formats: Path | None = typer.Option(
        None, "--formats", help="With --emulate: number formats of your own, TOML with tables [format.NAME]."
    ),
    edits: list[str] = typer.Option(
        [], "--set", help="With --emulate: a field of a number format, e.g. mxfp4.block=16. Repeatable."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of all inputs; the same one repeats every figure."),
    limit: str = typer.Option(_LIMIT, "--limit", help="Wall time after which your function is terminated."),
    mutants: bool = typer.Option(False, "--mutants", help="Also report the share of mutants that the case detects."),
    skeleton: bool = typer.Option(
        False, "--skeleton", help="Instead of a check: print a template function with the inputs of the case."
    ),
    probes: str = typer.Option(
        "", "--probes", help="Instead of cases: known defects of a package with a plug-in, probed by package name."
    ),
    json: bool = shared.JSON,
) -> None:
    """Check an implementation against the float64 reference: V0 to V12 of the numerics contract.

    Of a file, or of a built-in suite, every case is checked in sequence; your own function is called in
    a process of its own for each, so that one that ends it has crashed and one that hangs is ended. A case that cannot
    be checked is a row that says so. Exit code 12 when a check fails; a case that could not tell wrong from right, in a
    file or alone, is reported, but is no failure. The words and the seed of a record show it again.
    """
    options = {"--runner": runner, "--implementation": implementation, "--emulate": emulate, "--formats": formats,
               "--set": edits, "--mutants": mutants}  # fmt: skip
    if probes:
        _refuse("--probes asks a package by itself", {"cases": words, "--skeleton": skeleton, **options})
        return _probed(probes, json=json)
    if not words:
        raise SpecError("validate: there is no case; give e.g. gemm m=64 n=64 k=256 dtype=bf16, a suite, or --probes")
    if skeleton:
        _refuse("--skeleton checks nothing", options)
        from nearpeak.measurement.function_template import skeleton as skeleton_of

        sys.stdout.write(f"{skeleton_of(case_of(words, 'validate'))}\n")
        return None
    listed = listed_cases(words, "validate")
    tested = _tested(runner, implementation, emulate, formats, edits, seed, seconds_of(limit, "--limit"))
    how = _Asked(seed=seed, mutants=mutants, limit=limit)
    if listed is not None:
        return _suite_validated(listed, tested, how, json=json)
    return _case_validated(case_of(words, "validate"), tested, how, json=json)


def _tested(
    runner: str,
    implementation: str,
    emulate: str | None,
    formats: Path | None,
    edits: list[str],
    seed: int,
    limit_s: float,
) -> "Callable[[Case], Implementation | _Foreign]":
    """Return the implementation to test for each case, as the options name it."""
    if sum((bool(runner), bool(implementation), emulate is not None)) > 1:
        raise SpecError("validate: give one of --runner, --implementation and --emulate")
    if emulate is None and (formats or edits):
        raise SpecError("validate: --formats and --set go with --emulate")
    if emulate is not None:
        return lambda case: _emulated(case, emulate, formats, edits, seed)
    from nearpeak.measurement.isolated_validation import of_runner, runs_foreign_code

    if implementation:
        return lambda _: _Foreign(name=implementation, is_runner=False, limit_s=limit_s)
    if runner and runs_foreign_code(runner):
        return lambda _: _Foreign(name=runner, is_runner=True, limit_s=limit_s)
    _require_packages(runner)
    return lambda case: of_runner(runner or "torch_cpu", case)


def _require_packages(runner: str) -> None:
    """Refuse a runner whose package is absent before any case is judged by it; of PyTorch it says the extra itself."""
    from importlib.util import find_spec

    from nearpeak.measurement.runners import factory_of

    abilities = getattr(factory_of(runner), "abilities", None) if runner else None
    for package in getattr(abilities, "needs", ()):
        if package != "torch" and package not in sys.modules and find_spec(package) is None:
            raise MissingExtraError(f"{package} is not installed; 'pip install {package}'")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Foreign:
    """A user function by name; it is imported and called in a separate process only."""

    name: str
    """Words of the option that names it."""
    is_runner: bool
    """Whether the option is --runner."""
    limit_s: float
    """Wall time after which it is given up."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Options of the checks, the same for every case."""

    seed: int
    """Seed of all inputs."""
    mutants: bool
    """Whether to report the share of mutants that the case detects, too."""
    limit: str
    """Wall time of --limit, in its words."""

    def command(self, command: str) -> str:
        """Return a record's command with the options that the record itself does not know.

        >>> _Asked(seed=0, mutants=True, limit="3 s").command("nearpeak validate gemm m=1 --seed 0")
        "nearpeak validate gemm m=1 --seed 0 --limit '3 s' --mutants"
        """
        limit = () if self.limit == _LIMIT else ("--limit", self.limit)
        return shlex.join([*shlex.split(command), *limit, *(("--mutants",) if self.mutants else ())])


def _case_validated(
    case: "Case", tested: "Callable[[Case], Implementation | _Foreign]", how: _Asked, *, json: bool
) -> None:
    """Print what the contract says of one case, and fail where a check fails."""
    validation = _validated(case, tested(case), how, json=json)
    kind = _kind(validation)
    if kind == _UNTOLD:
        sys.stderr.write(f"{kind}: {_failure(case, validation)}\n")
    elif kind != _RIGHT:
        raise IncorrectError(_failure(case, validation))


_RIGHT, _UNTOLD = "right", "could not tell a wrong result"
_SAYS_NOTHING = {"DEGENERATE_CASE", "INVALID_REFERENCE"}
"""Statuses of checks that say nothing of the results: alone and in a suite they are no failure."""


def _kind(validation: "Validation") -> str:
    """Return in words what a record says of the results."""
    failed = {result.status for result in validation.results if result.failed}
    if not failed:
        return _RIGHT
    if failed <= _SAYS_NOTHING:
        return _UNTOLD
    return "fell back" if failed <= _SAYS_NOTHING | {"FALLBACK"} else "wrong"


def _validated(case: "Case", tested: "Implementation | _Foreign", how: _Asked, *, json: bool) -> "Validation":
    """Print and return what the contract says of one case."""
    from nearpeak.ops import label_of
    from nearpeak.reports import validation_report as report

    with shared.progress("validating"):
        validation, message = _found(case, tested, how.seed)
    validation = replace(validation, command=how.command(validation.command))
    sys.stderr.write(message)
    shared.tell(
        lambda: report.validation_document(label_of(case), validation),
        lambda: report.to_json(validation),
        json=json,
    )
    sys.stdout.write("" if json else f"again: {validation.command}\n")  # whole, so that it can be copied
    if how.mutants:
        sys.stdout.write(f"{_score(validation.case, how.seed, text_for_people=not json)}\n")
    return validation


def _found(case: "Case", tested: "Implementation | _Foreign", seed: int) -> "tuple[Validation, str]":
    """Return what the contract says, and what a function of the user's has printed last."""
    from nearpeak.measurement.isolated_validation import validated_apart
    from nearpeak.validation import validate as validated

    if isinstance(tested, _Foreign):
        return validated_apart(case, tested.name, seed, is_runner=tested.is_runner, limit_s=tested.limit_s)
    return validated(case, tested, seed=seed), ""


def _failure(case: "Case", validation: "Validation") -> str:
    """Return the first check that fails; one that says nothing of the results where no other does."""
    from nearpeak.ops import label_of

    failed = [result for result in validation.results if result.failed]
    first = next((result for result in failed if result.status not in _SAYS_NOTHING), failed[0])
    return f"{label_of(case)} by {validation.implementation}: {first.check} {first.status}: {first.reason}"


def _suite_validated(
    cases: "list[Case]", tested: "Callable[[Case], Implementation | _Foreign]", how: _Asked, *, json: bool
) -> None:
    """Print what the contract says of each case; those that cannot be checked or could not tell are counted apart."""
    counts: Counter[str] = Counter()
    failures = []
    for case in cases:
        try:
            _refuse_large(case)
            validation = _validated(case, tested(case), how, json=json)
        except NotModelledError as error:
            _say_unchecked(case, str(error), json=json)
            counts["cannot be checked"] += 1
            continue
        kind = _kind(validation)
        failures += [] if kind in (_RIGHT, _UNTOLD) else [_failure(case, validation)]
        counts[kind] += 1
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    if failures:
        raise IncorrectError(f"{failures[0]} (of {counted(len(cases), 'case')}: {summary})")
    sys.stderr.write(f"{counted(len(cases), 'case')}: {summary}\n")


def _say_unchecked(case: "Case", reason: str, *, json: bool) -> None:
    """Print that a case of a suite could not be checked, and why."""
    from nearpeak.ops import label_of

    if not json:
        sys.stdout.write(f"{_hung(f'{label_of(case)}: UNSUPPORTED: {reason}')}\n")
        return
    record = {"status": "UNSUPPORTED", "reason": reason, "case": case.record(), "digest": case.digest}
    sys.stdout.write(f"{jsonlib.dumps(record)}\n")


def _hung(line: str) -> str:
    from nearpeak.reports.figure_text import hung

    return "\n".join(hung([line]))


def _refuse(why: str, options: "Mapping[str, object]") -> None:
    used = [name for name, value in options.items() if value]
    if used:
        raise SpecError(f"validate: {why}; leave out {', '.join(used)}")


def _probed(name: str, *, json: bool) -> None:
    """Print each question that the package answers wrongly."""
    from nearpeak.validation.adapters import ADAPTERS

    adapter = ADAPTERS[name]
    with shared.progress("asking"):
        divergences = list(adapter.divergences(adapter.installed()))
    for divergence in divergences:
        row = {"operator": divergence.operator, "defect": divergence.name, "check": divergence.result.check,
               "status": divergence.result.status,
               "reason": divergence.result.reason}  # fmt: skip
        people = not json
        line = f"{divergence.operator}: {divergence.name}: {divergence.result.status} ({divergence.result.reason})"
        sys.stdout.write(f"{_hung(line) if people else jsonlib.dumps(row)}\n")
    line = f"{name}: {len(divergences)} of {len(adapter.PROBES)} questions are answered wrongly"
    if divergences:
        raise IncorrectError(line)
    sys.stderr.write(f"{line}\n")


def _emulated(case: "Case", words: str, formats: Path | None, edits: list[str], seed: int) -> "Implementation":
    """Return the case as emulated hardware computes it."""
    from nearpeak.simulation.emulation.block_formats import table_of
    from nearpeak.simulation.emulation.emulated_case import emulation
    from nearpeak.simulation.emulation.emulation_syntax import emulation_of_words

    accumulator, how = emulation_of_words(words)
    implementation: Implementation = emulation(case, accumulator, table_of(formats, edits), seed=seed, **how)
    files = () if formats is None else ("--formats", str(formats))
    return replace(
        implementation, words=("--emulate", words, *files, *(word for edit in edits for word in ("--set", edit)))
    )


def _score(case: "Case", seed: int, *, text_for_people: bool) -> str:
    """Return what share of the operator's mutants the case kills, and which pass."""
    from nearpeak.reports import validation_report as report
    from nearpeak.validation import forward_case
    from nearpeak.validation.mutants import mutation_score

    score = mutation_score(forward_case(case), seed=seed)
    if text_for_people:
        return report.score_to_terminal(score.killed, score.survived)
    return report.score_to_json(score.killed, score.survived, score.equivalent)


def _refuse_large(case: "Case") -> None:
    from nearpeak.case_tensors.size_limits import beyond_rounds

    reason = beyond_rounds(case)
    if reason:
        raise NotModelledError(reason)
