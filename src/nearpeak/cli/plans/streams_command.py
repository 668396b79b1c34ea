"""Command `nearpeak plan streams`: sensors that share the engines of a board."""

from functools import partial
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import INCONCLUSIVE_CODE, SLOWER_CODE


def streams(
    rig: Path = typer.Argument(help="TOML file of [[stream]] tables: rate, deadline, offset, stages, times or model."),
    target: list[str] = shared.ONE_TARGET,
    schedule: str = typer.Option(
        "streams", "--schedule", help="streams: in order of arrival, side by side; edf: nearest deadline first; "
        "slices: likewise, kernels cut so that others pass."
    ),
    modes: bool = typer.Option(False, "--modes", help="Judge every power mode; name the least that meets all."),
    pessimistic: bool = typer.Option(False, "--pessimistic", help="Take the high ends of predicted times."),
    engine: str = typer.Option("", "--engine", help="Engine that runs the models there, e.g. tensorrt:int8."),
    html: Path | None = typer.Option(None, "--html", help="Write a page with the timeline of a late frame."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show whether several sensor streams on one board meet their deadlines, and why they wait for each other.

    The verdict is proved by a test, refuted by a timeline in which a frame is late, or undecided. Exit code 0: proved;
    10: refuted; 11: undecided.
    """
    from nearpeak.api.edge.stream_plan import plan_rig
    from nearpeak.reports.systems import stream_plan_report as report

    shared.check_writable(html)
    as_json = shared.as_json(json=json, text=text)
    boards = shared.targets_of(target, [])
    planned = plan_rig(rig, boards[0], schedule=schedule, compares_modes=modes, is_pessimistic=pessimistic,
                       engine=engine)  # fmt: skip
    shared.write_page(html, report.document_of(planned))
    shared.tell(partial(report.document_of, planned), partial(report.to_json, planned), json=as_json, why=why)
    raise typer.Exit({"proved": 0, "refuted": SLOWER_CODE}.get(planned.outcome.verdict, INCONCLUSIVE_CODE))
