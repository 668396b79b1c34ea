"""`nearpeak validate`: whether an implementation computes a case right, by the numerics contract."""

import dataclasses
import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli._cases import suite_of_words
from nearpeak.cli._words import case_of
from nearpeak.errors import IncorrectError, SpecError

if TYPE_CHECKING:
    from nearpeak.core.case import Case
    from nearpeak.measure.validation import Implementation


def validate(
    words: list[str] = typer.Argument(
        ..., metavar="OP AXIS=EXTENT… | SUITE", help="e.g. gemm m=64 n=64 k=256 dtype=bf16, or a suite"
    ),
    runner: str = typer.Option("", "--runner", help="A runner's own way to compute it; torch_cpu by default."),
    implementation: str = typer.Option(
        "", "--implementation", help="module:function of (tensors by input name, **arguments) → outputs by name."
    ),
    emulate: str | None = typer.Option(
        None,
        "--emulate",
        help="Emulated hardware in place of a runner: hopper_fp8, or any of bits=14 group=32 promotion=128 "
        "rounding=toward_zero (how sums of products are kept), factors=mxfp4, vector=bf16.",
    ),
    formats: Path | None = typer.Option(
        None, "--formats", help="With --emulate: number formats of your own, TOML with tables [format.NAME]."
    ),
    edits: list[str] = typer.Option(
        [], "--set", help="With --emulate: a field of a number format, e.g. mxfp4.block=16. Repeatable."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of all inputs; the same one repeats every figure."),
    mutants: bool = typer.Option(False, "--mutants", help="Say what share of wrong implementations the case tells."),
    json: bool = shared.JSON,
) -> None:
    """Check an implementation against the float64 reference: V0 to V12 of the numerics contract.

    Of a suite, a file or a ready-made one, every chosen case is checked, one after the other in this process ('nearpeak
    measure SUITE' gives each its own). Exit code 12 when a check fails. 'nearpeak validate' with the words and the seed
    of a record shows it again.
    """
    if sum((bool(runner), bool(implementation), emulate is not None)) > 1:
        raise SpecError("validate: give one of --runner, --implementation and --emulate")
    if emulate is None and (formats or edits):
        raise SpecError("validate: --formats and --set go with --emulate")
    suite = suite_of_words(words)
    cases = [case_of(words, "validate")] if suite is None else [one.case for one in suite.chosen]
    given = _imported(implementation) if implementation else None
    failures = []
    for case in cases:
        tested = given or (
            _of_runner(runner or "torch_cpu", case)
            if emulate is None
            else _emulated(case, emulate, formats, edits, seed)
        )
        failures.append(_validated(case, tested, (seed, mutants), json=json))
    found = [one for one in failures if one]
    if found:
        more = f" ({len(found)} of {len(cases)} cases fail)" if suite is not None else ""
        raise IncorrectError(found[0] + more)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(validate)


def _validated(case: "Case", tested: "Implementation", how: tuple[int, bool], *, json: bool) -> str:
    """Print what the contract says of one case, and return the first check that fails; empty when none does."""
    from nearpeak.measure.validation import validate as validated
    from nearpeak.ops import label_of
    from nearpeak.report import _validation as report

    seed, mutants = how
    people = not json and shared.on_terminal()
    with shared.progress("validating"):
        found = validated(case, tested, seed=seed)
    text = report.to_terminal(label_of(case), found) if people else report.to_json(found)
    sys.stdout.write(f"{text}\n")
    if mutants:
        sys.stdout.write(f"{_score(found.case, seed, text_for_people=people)}\n")
    if not found.failed:
        return ""
    first = next(result for result in found.results if result.failed)
    return f"{label_of(case)} by {found.implementation}: {first.check} {first.status}: {first.reason}"


def _of_runner(name: str, case: "Case") -> "Implementation":
    """Return how the runner computes the case; a runner says so by a method `implementation`."""
    from nearpeak.core.measurement import Timing
    from nearpeak.measure.contract import named_implementation
    from nearpeak.measure.inputs import drawn
    from nearpeak.measure.runners import backend_of
    from nearpeak.measure.validation import pytorch

    if name == "torch_cpu":
        return pytorch(case)
    backend = backend_of(name, Timing())
    found: Implementation | None = None
    if hasattr(backend, "prepare"):
        ledger = backend.prepare(case, drawn(case)).ledger if backend.abilities.converts else ()
        found = named_implementation(case, backend, name, ledger)
    if found is None:
        raise SpecError(
            f"validate: runner {name} gives no outputs of {case.phase} to check; give --implementation module:function"
        )
    return found


def _emulated(case: "Case", words: str, formats: Path | None, edits: list[str], seed: int) -> "Implementation":
    """Return the case as emulated hardware computes it."""
    from nearpeak.sim.emulation import emulation
    from nearpeak.sim.emulation_words import emulation_of_words
    from nearpeak.sim.formats import table_of

    accumulator, how = emulation_of_words(words)
    found: Implementation = emulation(case, accumulator, table_of(formats, edits), seed=seed, **how)
    files = () if formats is None else ("--formats", str(formats))
    return replace(found, words=("--emulate", words, *files, *(word for edit in edits for word in ("--set", edit))))


def _score(case: "Case", seed: int, *, text_for_people: bool) -> str:
    """Return what share of the operator's mutants the case kills, and which pass."""
    from nearpeak.measure.validation import forward_case
    from nearpeak.measure.validation.mutants import mutation_score
    from nearpeak.report import _validation as report

    score = mutation_score(forward_case(case), seed=seed)
    if text_for_people:
        return report.score_to_terminal(score.killed, score.survived)
    return report.score_to_json(score.killed, score.survived, score.equivalent)


def _imported(text: str) -> "Implementation":
    """Return the implementation that `module:function` names; a module may lie in the current folder."""
    from nearpeak.measure.validation._run import as_implementation

    module, sign, name = text.partition(":")
    if not sign or not module or not name:
        raise SpecError(f"--implementation {text!r}: is not module:function; e.g. my_kernels:softmax")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"--implementation {text!r}: {error}") from None
    return dataclasses.replace(as_implementation(found), name=text)
