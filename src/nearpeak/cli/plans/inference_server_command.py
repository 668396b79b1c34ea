"""Command `nearpeak plan inference-server`: models behind dynamic batchers, as Triton configures them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import rate_of
from nearpeak.errors import SpecError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

_CONFIGS = typer.Argument(help="config.pbtxt; of an ensemble with those of its steps, or of models on one device.")
_TIMES = typer.Option(
    ..., "--times", help="Times of batches: 1=2ms,8=5ms; MODEL:1=2ms,…; a table (batch, time_ms); or captured steps, "
    "1=b1.json,8=b8.json with --on. Repeatable."
)  # fmt: skip
_STREAMS = typer.Option(
    [], "--stream", help="Requests at equal gaps with a deadline: camera=30/s:40ms or camera@MODEL=30/s. Repeatable."
)
_SHARE = typer.Option(
    "turns",
    "--share",
    help="How instances and models share a device: turns, mig, or mps:0.3, the slowdown by a busy "
    "neighbour; mps alone assumes 0.5, and the answer says so.",
)


def inference_server(
    configs: list[Path] = _CONFIGS,
    times: list[str] = _TIMES,
    on: str = typer.Option("", "--on", help="Device that captured steps are predicted for, also a MIG part."),
    rate: str = typer.Option("", "--rate", help="Poisson arrivals of requests, e.g. 800/s."),
    stream: list[str] = _STREAMS,
    items: int = typer.Option(1, "--items", min=1, max=1_000_000, help="Items of a request."),
    slo: str = typer.Option("", "--slo", help="Limit of the 99th percentile, p99=20ms."),
    share: str = _SHARE,
    devices: int = typer.Option(1, "--devices", min=1, max=1024, help="Devices with instances."),
    out: Path | None = typer.Option(None, "--out", help="Write config.pbtxt with the cheapest setting."),
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show p50 and p99 of an inference server against load, and the cheapest setting within a limit.

    Requests are put into batches as dynamic_batching, instance_group and ensemble_scheduling of the configuration say.
    """
    from nearpeak.api.serving.inference_service import ServerQuestion, plan_server
    from nearpeak.api.serving.server_words import batch_times_of, stream_of
    from nearpeak.reports.systems import inference_server_report as report
    from nearpeak.systems.serving.inference_server.model_config import read_model_config

    shared.check_writable(out)
    shared.check_writable(html)
    as_json = shared.as_json(json=json, text=text)
    if rate and stream:
        raise SpecError("--rate and --stream: each states a load; give one")
    read = tuple(read_model_config(path) for path in configs)
    names = [config.name for config in read]
    if len(set(names)) < len(names):
        raise SpecError(f"inference-server: two configurations of the model {max(names, key=names.count)!r}")
    ratio, how, is_assumed = _sharing_of(share)
    planned = plan_server(ServerQuestion(
        configs=read, times=batch_times_of(times, names, _predictor(on)), rate_per_s=rate_of(rate), item_count=items,
        streams=tuple(stream_of(words) for words in stream), limit_s=_limit_of(slo), sharing_ratio=ratio, how=how,
        is_sharing_assumed=is_assumed, device_count=devices,
    ))  # fmt: skip
    document = report.document_of(planned)
    if out is not None:
        shared.write_whole(out, planned.config.rstrip() + "\n")
    shared.write_page(html, document)
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(document, why=why)


def _predictor(on: str) -> "Callable[[str], float]":
    """Return the function that predicts the time of a captured step on a device."""

    def predicted_s(file: str) -> float:
        from nearpeak.api.questions import capture
        from nearpeak.api.submitted_step import submitted_step
        from nearpeak.core.work.workload import Workload
        from nearpeak.targets import target_of

        if not on:
            raise SpecError(f"--times {file}: is a captured step; name the device, --on TARGET")
        work = capture(file)
        if not isinstance(work, Workload):
            raise SpecError(f"--times {file}: is no captured step")
        return submitted_step(work, target_of(on)).time_s

    return predicted_s


def _sharing_of(text: str) -> tuple[float, str, bool]:
    """Return how much a busy instance lengthens another's batch, the same in words, and whether it is assumed.

    >>> _sharing_of("mps:0.3")[0]
    0.3
    """
    from nearpeak.api.serving.inference_service import SHARINGS

    name, sign, stated = text.partition(":")
    if name not in SHARINGS or (sign and name != "mps"):
        raise SpecError(f"--share {shown(text)}: is not turns, mps, mps:SLOWDOWN or mig")
    try:
        ratio = float(stated) if sign else SHARINGS[name]
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise SpecError(f"--share {shown(text)}: the slowdown by a busy neighbour lies between 0 and 1")
    if name == "mps":
        basis = "as stated" if sign else "assumed, no measurement"
        words = f"MPS: each busy neighbour lengthens a batch by {100 * ratio:.0f} % ({basis})"
        return ratio, words, not sign
    words = {"turns": "instances take turns on a device", "mig": "MIG: each has a part of its own"}[name]
    return ratio, words, False


def _limit_of(text: str) -> float | None:
    """Return the limit of the 99th percentile.

    >>> _limit_of("p99=20ms")
    0.02
    """
    if not text:
        return None
    name, _, value = text.partition("=")
    if name != "p99":
        raise SpecError(f"--slo {shown(text)}: is not p99=TIME")
    return shared.seconds_of(value, "--slo p99")
