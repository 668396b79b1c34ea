"""Command `nearpeak explain`: the difference of two predicted times, part by part."""

import shlex

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_syntax import case_of
from nearpeak.errors import SpecError


def explain(
    cases: list[str] = typer.Argument(
        ..., metavar="CASE [CASE]", help="in quotes, e.g. 'gemm m=4096 n=4096 k=4096 dtype=bf16' 'm=4097'"
    ),
    target: list[str] = shared.TARGET,
    edits: list[str] = shared.EDITS,
    json: bool = shared.JSON,
) -> None:
    """Explain the difference between two predicted times, part by part: two cases, two targets, or both.

    Words of the second case replace those of the first, so that 'm=4097' alone asks what one row more costs.
    """
    from nearpeak.api.achievable_time import explain as explained
    from nearpeak.ops import label_of
    from nearpeak.reports import explanation_report as report

    devices = shared.targets_of(target, edits)
    if len(cases) > 2 or len(devices) > 2:
        raise SpecError(
            f"explain: {len(cases)} cases on {len(devices)} targets; give two cases, two targets, or two of both, "
            "each case in quotes"
        )
    if len(cases) == len(devices) == 1:
        raise SpecError("explain: one case on one target has nothing to differ from; add a case or a --target")
    words = _words(cases[0])
    first = case_of(words, "explain")
    second = case_of(_replaced(words, _words(cases[1])), "explain") if len(cases) == 2 else first
    explanation = explained(first, second, target=devices[0], other_target=devices[-1])
    shared.tell(
        lambda: report.document_of(explanation, (label_of(first), label_of(second))),
        lambda: report.to_json(explanation), json=json,
    )  # fmt: skip


def _words(case: str) -> list[str]:
    """Return the words of one case.

    Raises:
        SpecError: the text is empty, or a quote in it does not end.
    """
    try:
        words = shlex.split(case)
    except ValueError as error:
        raise SpecError(f"explain: case {case!r}: {str(error).lower()}") from None
    if not words:
        raise SpecError(f"explain: case {case!r}: is empty; give e.g. 'gemm m=4096 n=4096 k=4096 dtype=bf16' 'm=4097'")
    return words


def _replaced(words: list[str], other: list[str]) -> list[str]:
    """Return the words of the second case, those that it leaves out taken from the first.

    >>> _replaced(["gemm", "m=1", "n=2"], ["m=3"])
    ['gemm', 'm=3', 'n=2']
    """
    if other and "=" not in other[0]:
        return other
    new = dict(word.partition("=")[::2] for word in other)
    merged = [f"{name}={new.pop(name)}" if (name := word.partition("=")[0]) in new else word for word in words]
    return merged + [f"{name}={value}" for name, value in new.items()]
