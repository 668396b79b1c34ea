"""Command `nearpeak plan federated`: rounds of federated learning on unlike boards."""

import sys
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

_POLICY = typer.Option("random", "--policy", help="random, fastest, deadline=TIME, energy or omnifedge.")
_AGAINST = typer.Option([], "--against", help="Another policy to compare with on the same seeds. Repeatable.")
_WHAT_IF = typer.Option([], "--what-if", help="Changes to try: mode, link, drop, 'add 4 BOARD[:MODE]'. Repeatable.")


def federated(
    fleet: Path = typer.Argument(help="Fleet file (.toml) with one [[client]] table per group of equal clients."),
    model: str = typer.Option("", "--model", help="Model name, or a saved training step (.json)."),
    rounds: int = typer.Option(100, "--rounds", min=1, help="Rounds to simulate."),
    clients: int = typer.Option(0, "--clients", min=0, help="Clients of a round; 10, or all of a smaller fleet."),
    policy: str = _POLICY,
    server: str = typer.Option("sync", "--server", help="sync, async or buffered=UPDATES."),
    against: list[str] = _AGAINST,
    what_if: list[str] = _WHAT_IF,
    train: bool = typer.Option(False, "--train", help="Train a small model on this CPU along the simulated rounds."),
    goal: str = typer.Option("85%", "--goal", help="With --train: accuracy whose rounds and seconds are wanted."),
    model_bytes: str = typer.Option("", "--model-bytes", help="Bytes of the model, e.g. '46.8 MB', without --model."),
    seeds: int = typer.Option(3, "--seeds", min=1, max=100, help="Seeds of random choices, the same for all policies."),
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show how long rounds of federated learning take on a fleet of unlike boards, who is last and why.

    A client's time is that of the model's training step on its board and power mode, predicted or as the fleet file
    states it. Policies that choose clients are compared on the same random draws.
    """
    from nearpeak.api.edge.federated_plan import plan_federation
    from nearpeak.core.federated.round_rules import policy_of, server_of
    from nearpeak.reports.systems import federation_report as report
    from nearpeak.units import parse_share

    shared.check_writable(html)
    as_json = shared.as_json(json=json, text=text)
    with shared.progress(f"planning {fleet}"):
        planned = plan_federation(
            fleet, model, policy=policy_of(policy), server=server_of(server),
            against=[policy_of(words) for words in against], round_count=rounds, asked_count=clients,
            model_bytes=_bytes_of(model_bytes), seeds=tuple(range(seeds)), what_if=what_if,
            goal_ratio=parse_share(goal, "--goal") if train else None,
        )  # fmt: skip
    shared.write_page(html, report.document_of(planned))
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(report.document_of(planned), why=why)


def _bytes_of(text: str) -> int:
    """Return the bytes of `--model-bytes`; 0 where it is not given.

    >>> _bytes_of("46.758 MB"), _bytes_of("")
    (46758000, 0)
    """
    from nearpeak.units import parse_count

    try:
        return parse_count(text, "B") if text else 0
    except SpecError as error:
        raise SpecError(f"--model-bytes: {error}") from None
