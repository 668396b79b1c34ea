"""Report of a validation, as a document and JSON."""

import json
from dataclasses import asdict

from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.reports.document import Document, Table, columns


def to_json(validation: Validation) -> str:
    """Return the record in one line."""
    record = {
        "status": validation.status, "implementation": validation.implementation, "seed": validation.seed,
        "case": validation.case.record(), "digest": validation.case.digest,
        "worst_bound_ratio": validation.worst_bound_ratio,
        "checks": [asdict(result) for result in validation.results], "command": validation.command,
        "policy": dict(validation.policy), "engine": validation.engine,
    }  # fmt: skip
    return json.dumps(record, ensure_ascii=False)


def validation_document(label: str, validation: Validation) -> Document:
    """Return the verdict, and a row for each check.

    >>> from nearpeak.core.work.case import Case
    >>> from nearpeak.reports.document.terminal import to_terminal
    >>> result = CheckResult(check="V1", status="SHAPE_FAIL", reason="y is [2], declared [3]")
    >>> validation = Validation(
    ...     case=Case(op="gemm", phase="forward", axes=(), dtypes=()), implementation="torch_cpu", seed=0,
    ...     results=(result,), command="nearpeak validate gemm")
    >>> print(to_terminal(validation_document("gemm", validation)), end="")
    gemm by torch_cpu: SHAPE_FAIL
      V1  SHAPE_FAIL  y is [2], declared [3]
    """
    rows = [(result.check, result.status, _figures(result)) for result in validation.results]
    checks = Table(columns=columns("check|", "status|", "~figures|"), rows=rows, indent_count=2)
    return Document(blocks=[f"{label} by {validation.implementation}: {validation.status}", checks])


def score_to_json(killed: tuple[str, ...], survived: tuple[str, ...], equivalent: tuple[tuple[str, str], ...]) -> str:
    """Return the mutants of a case in one line."""
    applicable = len(killed) + len(survived)
    record = {
        "mutation_score": len(killed) / applicable if applicable else None, "mutants": applicable,
        "survived": survived, "equivalent": dict(equivalent),
    }  # fmt: skip
    return json.dumps(record)


def score_to_terminal(killed: tuple[str, ...], survived: tuple[str, ...]) -> str:
    """Return what share of the mutants a case kills, and which pass.

    >>> print(score_to_terminal(("zero kernel", "constant kernel"), ("one element wrong y",)))
    mutants killed: 2 of 3; not detected: one element wrong y
    """
    missed = f"; not detected: {', '.join(survived)}" if survived else ""
    return f"mutants killed: {len(killed)} of {len(killed) + len(survived)}{missed}"


def _figures(result: CheckResult) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items())
    worst = "" if result.worst is None or result.failed else f"worst {result.worst.bound_ratio:.2g} of the bound"
    return "; ".join(part for part in (result.reason, worst, figures) if part)
