"""Command `nearpeak plan serve`: a service of a language model."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.plans import plan_options as options
from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import rate_of, replica_of
from nearpeak.errors import SLOWER_CODE, SpecError

if TYPE_CHECKING:
    from nearpeak.api.serving.service_plan import Fleet
    from nearpeak.api.serving.service_question import ServiceQuestion
    from nearpeak.core.systems.service import PlannedServing, ServiceChoice

_ON = typer.Option(
    ..., "--on", help="Devices, e.g. 8xh100_sxm; several counts (2,4,8xh100_sxm) and a repeated --on are compared."
)
_REPLICA = typer.Option(
    "", "--parallel", help="Replica, e.g. tp=2 or tp=8,ep=8,attention_dp=8; without it degrees are compared."
)
_REQUESTS = typer.Option(
    None,
    "--trace",
    help="Requests to serve (CSV, JSON lines, Parquet; vLLM, SGLang, AIPerf with single requests): arrival, "
    "input and output tokens; measured latencies (ttft_ms, tpot_ms, …) stand beside the predicted ones.",
)
_CV = typer.Option(
    1.0,
    "--cv",
    min=0.0,
    max=100.0,
    help="Variation of the gaps of --rate: 1 Poisson, above 1 bursts (gamma), 0 a clock.",
)
_SETTINGS = typer.Option(
    "", "--settings", help="Engine: chunk=2048,max_batch=256,prefix_cache=512,speculation=eagle:0.7:4,router=prefix,"
    "lora=4:64:20ms,rank_wait=60,priority=0.2,scale=1:32:60s,context=8192,kv_blocks=2588."
)  # fmt: skip
_POOLS = typer.Option(
    "", "--disaggregate", help="Pools, e.g. prefill=2xTP2,decode=1xTP4; without counts splits are compared."
)
_PRICE = typer.Option(
    "", "--price", help="Price of a device and hour in US dollars: 2.5, h100_sxm=2.5,l4=0.7, or a TOML file of "
    "prices with their date and source."
)  # fmt: skip
_WITHIN = typer.Option(
    "", "--within", help="Say whether so many requests per second fit within --slo, e.g. 12/s. Exit code 0: expected; "
    "10: not."
)  # fmt: skip
_OWNED = typer.Option("", "--owned", help="Instead of --price: USD_PER_DEVICE,YEARS,USD_PER_KWH[,PUE].")


def serve(
    model: str = typer.Argument(help="Model name, hf:TYPE, or a config.json."),
    on: list[str] = _ON,
    engine: str = typer.Option("vllm_v1", "--engine", help="Engine family (vllm_v1, trtllm, …) or its TOML file."),
    settings: str = _SETTINGS,
    parallel: str = _REPLICA,
    disaggregate: str = _POOLS,
    fabric: str = typer.Option("", "--fabric", help="Network between the nodes of --disaggregate, e.g. ib400."),
    weights: str = typer.Option("bf16", "--weights", help="Format of weights: bf16, fp8, nvfp4, …; several: bf16,fp8."),
    kv_cache: str = typer.Option("bf16", "--kv-cache", help="Format of the cache: bf16, fp8, or both: bf16,fp8."),
    trace: Path | None = _REQUESTS,
    rate: str = typer.Option("", "--rate", help="Random arrivals, e.g. 20/s."),
    cv: float = _CV,
    concurrency: int = typer.Option(0, "--concurrency", min=0, max=100_000, help="Clients that wait for their answer."),
    input_tokens: int = typer.Option(1024, "--input", min=1, max=100_000_000, help="Tokens of a prompt."),
    output_tokens: int = typer.Option(256, "--output", min=1, max=100_000_000, help="Tokens that a request generates."),
    slo: str = typer.Option("", "--slo", help="Limits that 99 % of the requests meet, e.g. ttft=2s,tpot=50ms."),
    within: str = _WITHIN,
    price: str = _PRICE,
    owned: str = _OWNED,
    against: Path | None = options.AGAINST,
    html: Path | None = typer.Option(None, "--html", help="Write a page with batch, queue and cache over time."),
    trace_out: Path | None = typer.Option(None, "--trace-out", help="Write the steps of the run for Perfetto."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show what a service of a language model reaches, at which latency, for which price.

    With --trace, --rate or --concurrency that load is served; with --slo alone the highest rate within the limits is
    searched for. Requests go through the scheduler of the engine, step by step, with predicted kernels.
    """
    from nearpeak.api.serving.service_choice import choose_service
    from nearpeak.api.serving.service_plan import weight_scheme
    from nearpeak.core.systems.service_settings import settings_of
    from nearpeak.systems.serving.latency_metrics import Limits

    shared.check_writable(html)
    shared.check_writable(trace_out)
    as_json, asked_per_s = options.as_json(json, text, against), rate_of(within, "--within")
    before = options.text_before(against, "serve", "best", "parts_s")
    if asked_per_s and (not slo or trace or rate or concurrency):
        raise SpecError("--within: asks for a rate within limits; give --slo, and no load")
    question = _question_of(
        trace, rate, concurrency, engine=engine, settings=settings_of(settings), input_tokens=input_tokens,
        output_tokens=output_tokens, gap_cv_ratio=cv, limits=Limits(**_limits_of(slo)),
    )  # fmt: skip
    fleets = _fleets_of(on, price, owned, parallel=parallel, pools=disaggregate, fabric=fabric)
    choice = choose_service(model, fleets, question, weights=[weight_scheme(form) for form in _words(weights)],
                            caches=[cache_of(form) for form in _words(kv_cache)])  # fmt: skip
    _show(choice, against, before, html, trace_out, as_json=as_json, why=why)
    if asked_per_s:
        _tell_whether(max(choice.plans, key=lambda plan: plan.best.rate_per_s), asked_per_s)


def _tell_whether(best: "PlannedServing", asked_per_s: float) -> None:
    """Say on standard error whether the best service is expected to carry a rate, and exit accordingly."""
    option = best.best
    is_kept, low_per_s, high_per_s = option.rate_per_s >= asked_per_s, option.low_per_s, option.high_per_s
    doubt = "; the interval holds it, measure it" if low_per_s < asked_per_s <= high_per_s else ""
    sys.stderr.write(
        f"{asked_per_s:g} requests/s within the limits: {'yes' if is_kept else 'no'}, {option.rate_per_s:.3g}/s are "
        f"expected ({low_per_s:.3g} to {high_per_s:.3g}) on {best.device_count} × {best.target}{doubt}\n"
    )
    if not is_kept:
        raise typer.Exit(SLOWER_CODE)


def _show(
    choice: "ServiceChoice",
    against: Path | None,
    before: str,
    html: Path | None,
    trace_out: Path | None,
    *,
    as_json: bool,
    why: bool,
) -> None:
    """Write the page and the trace that were asked for, and print the service, the choice, or what changed."""
    from nearpeak.reports.systems import serving_plan_report as report

    best = choice.plans[0]
    is_one = len(choice.plans) == 1 and not choice.refused
    document = report.document_of(best) if is_one else report.choice_document(choice)
    other = None if against is None else report.difference_of(best, before, str(against))
    shared.write_page(html, document)
    if trace_out is not None:
        from nearpeak.systems.timeline_trace import write_timeline

        write_timeline(best.spans, trace_out)
        sys.stderr.write(f"wrote {trace_out}\n")
    if as_json:
        sys.stdout.write(report.to_json(best if is_one else choice) + "\n")
    else:
        shared.print_document(other or document, why=why)


def _question_of(trace: Path | None, rate: str, concurrency: int, **others: Any) -> "ServiceQuestion":
    """Return the question with its load."""
    from nearpeak.api.serving.service_question import ServiceQuestion
    from nearpeak.systems.serving.loads.request_file import read_log

    loads = [name for name, value in (("--trace", trace), ("--rate", rate), ("--concurrency", concurrency)) if value]
    if len(loads) > 1:
        raise SpecError(f"{' and '.join(loads)}: each states a load; give one")
    if others["gap_cv_ratio"] != 1 and (trace or concurrency):
        raise SpecError("--cv: is of arrivals that are drawn; give --rate or --slo alone")
    requests, measured = read_log(trace) if trace else (None, {})
    return ServiceQuestion(
        requests=requests, measured_s=measured, rate_per_s=rate_of(rate), concurrency=concurrency, **others
    )


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _fleets_of(
    on: list[str], price: str, owned: str, *, parallel: str, pools: str, fabric: str
) -> "list[Fleet]":  # fmt: skip
    """Return the devices of each `--on` with their price."""
    from nearpeak.api.serving.service_plan import Fleet
    from nearpeak.core.systems.ownership import ownership_of
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    if price and owned:
        raise SpecError("--price and --owned: each states what a device costs; give one")
    if parallel and pools:
        raise SpecError("--parallel and --disaggregate: each states a layout; give one")
    base, fleets, prices = replica_of(parallel), [], options.prices_of(price)
    for words in on:
        several = re.fullmatch(r"(\d+(?:,\d+)+)x(.+)", words)
        for each in [f"{count}x{several[2]}" for count in several[1].split(",")] if several else [words]:
            count, target = counted_devices(each)
            device = target_of(target)  # before its price, of which a wrong name has none
            usd, source = prices(target)
            fleets.append(Fleet(
                target=device, device_count=count or 1, layouts=(base,) if parallel else (), base=base,
                pools=pools, fabric=fabric, usd_per_device_hour=usd, price_source=source,
                ownership=ownership_of(owned) if owned else None,
            ))  # fmt: skip
    return fleets


def cache_of(name: str) -> str:
    """Return the format that a name of the cache's means.

    >>> cache_of("fp8")
    'fp8_e4m3'
    """
    formats = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3"}
    if name not in formats:
        raise SpecError(f"--kv-cache {name!r}: is not one of {', '.join(formats)}")
    return formats[name]


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
