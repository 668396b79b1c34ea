"""Command `nearpeak plan pipeline`: a page through Python functions and ONNX models."""

from functools import partial
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError


def pipeline(
    file: Path = typer.Argument(help="TOML file of [[stage]] tables: name, call (module:function) or model (ONNX)."),
    page: str = typer.Option("", "--input", help="What the first stage gets, e.g. the path of an image."),
    target: list[str] = shared.ONE_TARGET,
    engine: str = typer.Option("", "--engine", help="Engine that runs the models there, e.g. tensorrt:int8."),
    measure: bool = typer.Option(False, "--measure", help="Warm up, time several passes, record nodes of models."),
    rounds: int = typer.Option(5, "--rounds", min=1, max=10_000, help="Passes with --measure."),
    threads: int = typer.Option(1, "--threads", min=1, max=1024, help="Threads of each model."),
    calibration: Path | None = typer.Option(
        None, "--calibration", help="JSON of another page of this pipeline: say what this page should take by it."
    ),
    perfetto: Path | None = typer.Option(None, "--perfetto", help="Write stages and nodes for Perfetto (.json, …)."),
    save: Path | None = typer.Option(None, "--save", help="Write the answer as JSON, for --calibration later."),
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show where the time of a page goes in a pipeline around ONNX models, and what its models take on a board.

    The functions and models of the file run on this machine. Parts of functions are named by `with
    nearpeak.stage("name"):`. Batches of items of unlike width say how much of them is padding.
    """
    from nearpeak.api.edge.pipeline_plan import plan_pipeline
    from nearpeak.reports.systems import pipeline_plan_report as report

    for path in (perfetto, save, html):
        shared.check_writable(path)
    as_json = shared.as_json(json=json, text=text)
    if len(target) > 1:
        raise SpecError("--target: one board at a time")
    with shared.progress("running the pipeline"):
        planned = plan_pipeline(
            file, page, target=target[0] if target else "", is_measured=measure, calibration=calibration,
            perfetto=perfetto, rounds=rounds, thread_count=threads, engine=engine,
        )  # fmt: skip
    if save is not None:
        shared.write_whole(save, report.to_json(planned))
    shared.write_page(html, report.document_of(planned))
    shared.tell(partial(report.document_of, planned), partial(report.to_json, planned), json=as_json, why=why)
