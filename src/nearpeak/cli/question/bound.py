"""Command `nearpeak bound`: the proved lower bound on the time of one case or of a table of cases."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import table_of
from nearpeak.cli.shared.completion import operators
from nearpeak.cli.shared.table_files import check_table, read_usable, write_answered
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearpeak.core.answers.bound import Bound, Policy
    from nearpeak.core.work.case import Case
    from nearpeak.core.work.target import Target


def bound(
    words: list[str] = typer.Argument(
        None,
        metavar="OP AXIS=EXTENT… | FILE",
        help="e.g. gemm m=4096 n=4096 k=4096 dtype=bf16; a table, a suite.",
        autocompletion=operators,
    ),
    target: list[str] = shared.TARGET,
    cases: Path | None = typer.Option(None, "--cases", help="Table of cases (.csv, .jsonl, .parquet), or - for stdin."),
    out: Path | None = typer.Option(None, "--out", help="Write the table with bound_s and limiter added."),
    edits: list[str] = shared.EDITS,
    policy: str = shared.POLICY,
    algorithm: str = shared.ALGORITHM,
    no_credit: bool = shared.NO_CREDIT,
    fabric: str = shared.FABRIC,
    stride: int = shared.STRIDE,
    json: bool = shared.JSON_LINES,
) -> None:
    """Show the proved lower bound on the time of a case, term by term, or add it to a table of cases.

    A table has the columns op, dtype and the operator's axes ('nearpeak show ops' names them). JSON lines of cases
    can be piped in, e.g. from 'nearpeak capture'. A row that is no case (an axis is missing, a format unknown, axes
    contradict each other), or for which there is no rule or no figure of the target, keeps its place without a bound
    and says why in the column refused; the exit code is then 1.
    """
    devices, bounds = shared.targets_of(target, edits), shared.policy_of(policy, algorithm, no_credit)
    check_table(out)
    file = table_of(words)
    if words and cases is not None:
        raise SpecError("bound: give one case in words or --cases FILE, not both")
    if words and file is None and out is not None:
        raise SpecError("bound: --out writes a table; with one case in words leave it out, or give --cases FILE")
    if (fabric or stride != 1) and (not words or file is not None or not fabric):
        raise SpecError("bound: --fabric and --stride go together with one collective in words, e.g. --fabric ib400")
    if words and file is None:
        bound_of = partial(_bound_between_nodes, fabric=fabric, stride=stride) if fabric else _bound_of_case
        _bound_case(case_of(words, "bound"), devices, bounds, bound_of, json=json)
    elif file is not None or cases is not None or not sys.stdin.isatty():
        _bound_table(cases or file, out, devices, bounds, json=json)
    else:
        raise SpecError("bound: no case; e.g. nearpeak bound gemm m=4096 n=4096 k=4096 dtype=bf16 --target h100_sxm")


def _bound_of_case(case: "Case", device: "Target", policy: "Policy") -> "Bound":
    from nearpeak.bounds.case_bound import case_bound

    return case_bound(case, device, policy)


def _bound_between_nodes(case: "Case", device: "Target", policy: "Policy", fabric: str, stride: int) -> "Bound":
    from nearpeak.api.cluster_collectives import bound_collective

    return bound_collective(case, device, fabric, policy, stride)


def _bound_case(
    case: "Case", devices: list["Target"], policy: "Policy", bound_of: "Callable[..., Bound]", *, json: bool
) -> None:  # fmt: skip
    from nearpeak.ops import label_of
    from nearpeak.reports import case_bound_report as report

    for device in devices:
        bound = bound_of(case, device, policy)
        shared.tell(
            partial(report.document_of, label_of(case), device, bound),
            partial(_record, case, device, bound, policy), json=json,
        )  # fmt: skip


def _record(case: "Case", device: "Target", bound: "Bound", policy: "Policy") -> str:
    from nearpeak.api.questions import version
    from nearpeak.bounds.proof_checker import proof_of
    from nearpeak.reports import case_bound_report as report

    return report.to_json(case, device, bound, proof_of(case.digest, bound, device, policy, version()))


def _bound_table(path: Path | None, out: Path | None, devices: list["Target"], policy: "Policy", *, json: bool) -> None:
    from nearpeak.bounds.bound_table import answered_table

    if len(devices) != 1:
        raise SpecError(f"bound: a table takes one target, got {len(devices)}; run once per target")
    columns, usable = read_usable(path, "bound")
    columns.pop("refused", None)  # what an earlier bound of the table said
    bounds = answered_table(usable.table, devices[0], policy)
    high = {} if bounds.high_s is None else {"bound_high_s": bounds.high_s}
    added = {"bound_s": bounds.bound_s, **high, "limiter": bounds.limiter}
    write_answered(out, "bound", columns, usable, added, bounds.refused, plain=json)
