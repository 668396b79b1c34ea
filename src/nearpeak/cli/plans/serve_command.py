"""Command `nearpeak plan serve`: a service of a language model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.plans import plan_options as options
from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.systems.serving_layout import ServingLayout

_ON = typer.Option(..., "--on", help="Devices: count and target, e.g. 64xh100_sxm; a target alone is one device.")
_REPLICA = typer.Option(
    "", "--parallel", help="Replica, e.g. tp=2 or tp=8,ep=8,attention_dp=8; without it degrees are compared."
)
_REQUESTS = typer.Option(
    None, "--trace", help="Requests to serve (CSV, JSON lines, Parquet): arrival, input and output tokens."
)


def serve(
    model: str = typer.Argument(help="Model name, hf:TYPE, or a config.json."),
    on: str = _ON,
    engine: str = typer.Option("vllm_v1", "--engine", help="Engine family: vllm_v1, vllm_v0, trtllm, …"),
    parallel: str = _REPLICA,
    weights: str = typer.Option("bf16", "--weights", help="Format of weights: bf16, fp8, fp8_block, nvfp4, int4, …"),
    kv_cache: str = typer.Option("bf16", "--kv-cache", help="Format of the cache: bf16 or fp8."),
    trace: Path | None = _REQUESTS,
    rate: str = typer.Option("", "--rate", help="Poisson arrivals, e.g. 20/s."),
    concurrency: int = typer.Option(0, "--concurrency", min=0, help="Clients that each wait for their answer."),
    input_tokens: int = typer.Option(1024, "--input", min=1, help="Tokens of a prompt."),
    output_tokens: int = typer.Option(256, "--output", min=1, help="Tokens that a request generates."),
    slo: str = typer.Option("", "--slo", help="Limits that 99 % of the requests meet, e.g. ttft=2s,tpot=50ms."),
    price: str = options.PRICE,
    against: Path | None = options.AGAINST,
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show what a service of a language model reaches, at which latency, for which price.

    With --trace, --rate or --concurrency that load is served; with --slo alone the highest rate within the limits is
    searched for. Requests go through the scheduler of the engine, step by step, with predicted kernels.
    """
    from nearpeak.api.serving.service_plan import plan_serving, weight_scheme
    from nearpeak.reports.systems import serving_plan_report as report
    from nearpeak.systems.serving.latency_metrics import Limits
    from nearpeak.systems.serving.loads.request_file import read_requests
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    shared.check_writable(html)
    as_json = options.as_json(json, text, against)
    loads = [name for name, value in (("--trace", trace), ("--rate", rate), ("--concurrency", concurrency)) if value]
    if len(loads) > 1:
        raise SpecError(f"{' and '.join(loads)}: each states a load; give one")
    device_count, target = counted_devices(on)
    base = _replica_of(parallel, weight_scheme(weights), kv_cache)
    planned = plan_serving(
        model, target_of(target), device_count or 1, engine=engine, layouts=(base,) if parallel else (),
        base=base, requests=read_requests(trace) if trace else None, rate_per_s=_rate_of(rate), concurrency=concurrency,
        input_tokens=input_tokens, output_tokens=output_tokens, limits=Limits(**_limits_of(slo)),
        usd_per_device_hour=options.usd_of(price),
    )  # fmt: skip
    if html is not None:
        from nearpeak.reports.document.html import to_html

        shared.write_whole(html, to_html(report.document_of(planned)))
    other = None if against is None else report.difference_of(planned, shared.text_of(against), str(against))
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(other or report.document_of(planned), why=why)


def _replica_of(text: str, weights: str, cache: str) -> "ServingLayout":
    """Return the layout of a replica with its degrees and formats.

    >>> _replica_of("tp=8,ep=8", "bf16", "fp8").kv_format
    'fp8_e4m3'
    """
    from nearpeak.core.systems.serving_layout import ServingLayout

    formats = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3"}
    if cache not in formats:
        raise SpecError(f"--kv-cache {cache!r}: is not one of {', '.join(formats)}")
    degrees, stated = dict.fromkeys(("tp", "pp", "ep", "attention_dp"), 1), set[str]()
    for word in filter(None, text.split(",")):
        name, _, value = word.strip().partition("=")
        if name not in degrees or name in stated or not value.isdigit():
            forms = ", ".join(f"{key}=NUMBER" for key in degrees)
            raise SpecError(f"--parallel {word!r}: is not one of {forms}, each once")
        stated.add(name)
        degrees[name] = int(value)
    return ServingLayout(
        tp=degrees["tp"], pp=degrees["pp"], ep=degrees["ep"], attention_dp=degrees["attention_dp"],
        weight_format=weights, kv_format=formats[cache],
    )  # fmt: skip


def _rate_of(text: str) -> float:
    """Return the requests per second of `--rate`; 0 where it is not given.

    >>> _rate_of("20/s"), _rate_of("")
    (20.0, 0.0)
    """
    try:
        rate = float(text.removesuffix("/s")) if text else 0.0
    except ValueError:
        rate = -1.0
    if text and not 0 < rate < 1e6:
        raise SpecError(f"--rate {text!r}: is not a number of requests per second; e.g. 20/s")
    return rate


def _limits_of(text: str) -> dict[str, float]:
    """Return the limits of `--slo` by latency.

    >>> _limits_of("ttft=2s,tpot=50ms")
    {'ttft_s': 2.0, 'tpot_s': 0.05}
    """
    known, limits = ("ttft", "tpot", "latency"), dict[str, float]()
    for word in filter(None, text.split(",")):
        name, _, value = word.strip().partition("=")
        if name not in known or f"{name}_s" in limits:
            raise SpecError(f"--slo {word!r}: is not one of {', '.join(f'{key}=TIME' for key in known)}, each once")
        limits[f"{name}_s"] = shared.seconds_of(value, f"--slo {name}")
    return limits
