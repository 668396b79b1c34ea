"""Command `nearpeak explain`: the difference of two predicted times, part by part."""

import typer

from nearpeak.api.case_words import case_of, replaced_words, words_of
from nearpeak.cli.shared import options as shared
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
    words = words_of(cases[0], "explain")
    first = case_of(words, "explain")
    second = case_of(replaced_words(words, words_of(cases[1], "explain")), "explain") if len(cases) == 2 else first
    explanation = explained(first, second, target=devices[0], other_target=devices[-1])
    shared.tell(
        lambda: report.document_of(explanation, (label_of(first), label_of(second))),
        lambda: report.to_json(explanation), json=json,
    )  # fmt: skip
