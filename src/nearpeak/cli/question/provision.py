"""Command `nearpeak provision`: the minimum device figures that a target time requires."""

import re
import sys

import typer

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.completion import operators_or_models, targets
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError


@takes_capture_options(*SIZES, *FORMATS, "autocast", "guess_sizes", "evaluation", "shapes", "input_values", "axes")
def provision(
    words: list[str] = typer.Argument(
        metavar="OP AXIS=EXTENT… | MODEL", help="A case in words, or a model.", autocompletion=operators_or_models
    ),
    within: str = typer.Option(..., "--within", help="Time to reach, e.g. '5 ms'."),
    on: str | None = typer.Option(
        None, "--on", help="Base target: show its shortfalls as factors.", autocompletion=targets
    ),
    edits: list[str] = shared.EDITS,
    options: CaptureOptions = CaptureOptions(),
    policy: str = shared.POLICY,
    algorithm: str = shared.ALGORITHM,
    no_credit: bool = shared.NO_CREDIT,
    json: bool = shared.JSON,
) -> None:
    """Show the least bandwidth, rates, clock and storage with which a case or a model step could take a given time.

    Each figure is necessary by itself. With --on, the figures of the target are shown next to them.
    """
    from nearpeak.api import questions
    from nearpeak.ops import OPS
    from nearpeak.reports import provision_report as report

    within_s = _time_s(within)
    if on is None and edits:
        raise SpecError("provision: --set edits the target of --on; give --on TARGET too")
    target = shared.targets_of([on], edits)[0] if on is not None else None
    bounds = shared.policy_of(policy, algorithm, no_credit)
    is_case = len(words) > 1 or words[0] in OPS.names()  # an operator, or anything with axes behind it
    subject = case_of(words, "provision") if is_case else workload_of(words[0], options)

    result = questions.provision(subject, within_s, target, bounds)
    if json:
        sys.stdout.write(report.to_json(result) + "\n")
    else:
        shared.print_document(report.document_of(result))


def _time_s(text: str) -> float:
    """Return the seconds of `--within`; the space before the unit may be left out.

    >>> _time_s("5ms"), _time_s("1.5 us")
    (0.005, 1.5e-06)
    """
    from nearpeak.units import parse

    spaced = re.sub(r"^([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*(?=\S)", r"\1 ", text.strip())
    try:
        return parse(spaced, "s")
    except SpecError as error:
        raise SpecError(f"--within {text!r}: {error}") from None
