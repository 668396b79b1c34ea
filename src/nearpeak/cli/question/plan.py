"""Command `nearpeak plan`: training, serving and goodput on many devices."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.systems.fabric import Cluster
    from nearpeak.core.systems.serving_layout import ServingLayout
    from nearpeak.core.systems.training_job import PlannedTraining

_ON = typer.Option(..., "--on", help="Devices: count and target, e.g. 64xh100_sxm; a target alone is one device.")
_FABRIC = typer.Option("", "--fabric", help="Network between nodes (ib400, ib_hdr:4, …), or a TOML file.")
_PLAN = typer.Option(
    "", "--parallel",
    help="Plan, e.g. tp=8,pp=2,schedule=interleaved:4,recompute=selective,zero=1,sp; searched for without it.",
)  # fmt: skip
_GOODPUT = typer.Option(
    "", "--goodput", help="Long run with failures, e.g. checkpoint=60s,restart=10min,mtbf=3.1h,spares=2%,repair=1d; "
    "without mtbf by the rate of the Llama 3 report."
)  # fmt: skip
_CHAKRA = typer.Option(
    None, "--chakra-out", help="Folder for a Chakra trace of every rank, which network simulators read."
)
_REPLICA = typer.Option(
    "", "--parallel", help="Replica, e.g. tp=2 or tp=8,ep=8,attention_dp=8; without it degrees are compared."
)
_REQUESTS = typer.Option(
    None, "--trace", help="Requests to serve (CSV, JSON lines, Parquet): arrival, input and output tokens."
)
_AGAINST = typer.Option(None, "--against", help="JSON of another plan: say what changed.")
_PRICE = typer.Option("", "--price", help="Price of one device and hour in US dollars, e.g. 2.5.")


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = shared.group_of("Plan many devices: what a training step takes, whether it fits, what to change.")
    group.command("train")(train)
    group.command("serve")(serve)
    app.add_typer(group, name="plan")


def train(
    model: str = typer.Argument(help="Model name, hf:TYPE, or a config.json."),
    on: str = _ON,
    fabric: str = _FABRIC,
    parallel: str = _PLAN,
    sequence: int = typer.Option(4096, "--sequence", min=1, help="Tokens per sequence."),
    global_batch: int = typer.Option(0, "--global-batch", min=0, help="Sequences of one step."),
    tokens_per_step: str = typer.Option("", "--tokens-per-step", help="Tokens of one step, e.g. 4M."),
    precision: str = typer.Option("bf16", "--precision", help="bf16, fp16, fp8-current, fp8-delayed, fp8-block, …"),
    stack: str = typer.Option("megatron-lm", "--stack", help="Software stack: host times and memory rules."),
    price: str = _PRICE,
    goodput: str = _GOODPUT,
    against: Path | None = _AGAINST,
    html: Path | None = typer.Option(None, "--html", help="Write a page with the timeline of ranks."),
    trace_out: Path | None = typer.Option(None, "--trace-out", help="Write the timeline for Perfetto."),
    chakra_out: Path | None = _CHAKRA,
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show what one training step of a language model takes on a cluster, whether it fits, and what to change.

    Without --parallel the fastest plan that fits is searched for; bounds prove that no other is faster by the same
    predictions. Times are predicted kernels, collectives and host times of the software stack, with a 90 % interval.
    """
    from nearpeak.api.chakra_traces import write_chakra_traces
    from nearpeak.api.goodput_words import goodput_in_words
    from nearpeak.api.job_plan import FRAMEWORKS, plan_training
    from nearpeak.core.systems.plan_words import batch_of, check_batch, training_plan_of
    from nearpeak.reports.systems import training_plan_report as report

    shared.check_writable(html)
    shared.check_writable(trace_out)
    as_json, cluster = _as_json(json, text, against), _cluster_of(on, fabric)
    tokens = _tokens_of(tokens_per_step)
    check_batch(tokens, sequence, global_batch)
    plan = None
    if parallel:
        plan = training_plan_of(parallel, cluster.device_count, sequence=sequence, global_batch=global_batch,
                                tokens_per_step=tokens, precision=precision,
                                defaults={"framework": FRAMEWORKS.get(stack, "megatron-lm")})  # fmt: skip
    batch = global_batch or batch_of(tokens, sequence, cluster.device_count)
    long_run = goodput_in_words(goodput, cluster.device_count) if goodput else None
    planned = plan_training(
        model, cluster, plan, stack=stack, sequence=sequence, global_batch=batch, precision=precision,
        usd_per_device_hour=_usd_of(price), goodput=long_run,
    )  # fmt: skip
    other = None if against is None else report.difference_of(planned, shared.text_of(against), str(against))
    _write_files(planned, html, trace_out)
    if chakra_out is not None:
        write_chakra_traces(model, planned.plan, cluster, chakra_out, stack)
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(other or report.document_of(planned), why=why)


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
    price: str = _PRICE,
    against: Path | None = _AGAINST,
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show what a service of a language model reaches, at which latency, for which price.

    With --trace, --rate or --concurrency that load is served; with --slo alone the highest rate within the limits is
    searched for. Requests go through the scheduler of the engine, step by step, with predicted kernels.
    """
    from nearpeak.api.service_plan import plan_serving, weight_scheme
    from nearpeak.reports.systems import serving_plan_report as report
    from nearpeak.systems.serving.latency_metrics import Limits
    from nearpeak.systems.serving.loads.request_file import read_requests
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    shared.check_writable(html)
    as_json = _as_json(json, text, against)
    loads = [name for name, value in (("--trace", trace), ("--rate", rate), ("--concurrency", concurrency)) if value]
    if len(loads) > 1:
        raise SpecError(f"{' and '.join(loads)}: each states a load; give one")
    device_count, target = counted_devices(on)
    base = _replica_of(parallel, weight_scheme(weights), kv_cache)
    planned = plan_serving(
        model, target_of(target), device_count or 1, engine=engine, layouts=(base,) if parallel else (),
        base=base, requests=read_requests(trace) if trace else None, rate_per_s=_rate_of(rate), concurrency=concurrency,
        input_tokens=input_tokens, output_tokens=output_tokens, limits=Limits(**_limits_of(slo)),
        usd_per_device_hour=_usd_of(price),
    )  # fmt: skip
    if html is not None:
        from nearpeak.reports.document.html import to_html

        shared.write_whole(html, to_html(report.document_of(planned)))
    other = None if against is None else report.difference_of(planned, shared.text_of(against), str(against))
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(other or report.document_of(planned), why=why)


def _cluster_of(on: str, fabric: str) -> "Cluster":
    """Return the cluster that a plan is asked for."""
    from nearpeak.api.job_plan import MOST_DEVICES
    from nearpeak.targets.clusters import cluster_of

    cluster = cluster_of(on, fabric)
    if cluster.device_count > MOST_DEVICES:
        raise SpecError(f"--on {on}: plans are answered for at most {MOST_DEVICES:,} devices")
    return cluster


def _as_json(json: bool, text: bool, against: Path | None) -> bool:
    """Return whether to print JSON; a comparison is words, also in a pipe."""
    if json and against is not None:
        raise SpecError(
            "--json and --against: a comparison has no JSON; compare the JSON of both plans, or drop --json"
        )
    return shared.as_json(json=json, text=text or against is not None)


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


def _write_files(planned: "PlannedTraining", html: Path | None, trace_out: Path | None) -> None:
    """Write the page and the trace that were asked for."""
    from nearpeak.reports.systems import training_plan_report as report

    if html is not None:
        from nearpeak.reports.document.html import to_html

        shared.write_whole(html, to_html(report.document_of(planned)))
    if trace_out is not None:
        from nearpeak.systems.timeline_trace import write_timeline

        write_timeline(planned.time.spans, trace_out)
        sys.stderr.write(f"wrote {trace_out}\n")


def _tokens_of(text: str) -> float:
    """Return the tokens of `--tokens-per-step`.

    >>> _tokens_of("4M"), _tokens_of("")
    (4000000.0, 0.0)
    """
    factors = {"k": 1e3, "M": 1e6, "G": 1e9}
    digits, factor = (text[:-1], factors[text[-1]]) if text and text[-1] in factors else (text, 1.0)
    try:
        count = float(digits or 0) * factor
    except ValueError:
        count = -1.0
    if not 0 <= count < 1e15:
        raise SpecError(f"--tokens-per-step {text!r}: is not a number of tokens; e.g. 4M or 524288")
    return count


def _usd_of(text: str) -> float | None:
    """Return the price of `--price`; none where it is not given.

    >>> _usd_of("2.5/h"), _usd_of("")
    (2.5, None)
    """
    if not text:
        return None
    try:
        price = float(text.removesuffix("/h").removeprefix("$"))
    except ValueError:
        price = -1.0
    if not 0 < price < 1e6:
        raise SpecError(f"--price {text!r}: is not a price of one device and hour; e.g. 2.5")
    return price
