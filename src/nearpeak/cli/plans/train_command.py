"""Command `nearpeak plan train`: a training step on many devices."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.plans import plan_options as options
from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import usd_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.systems.fabric import Cluster
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
_OPTIMIZER = typer.Option(
    "adamw", "--optimizer", help="adamw, or kfac, shampoo or muon: kfac,factors=10,inverses=100,grid=4 (steps "
    "between updates; ranks that do nothing but inverses)."
)  # fmt: skip
_CHAKRA = typer.Option(
    None, "--chakra-out", help="Folder for a Chakra trace of every rank, which network simulators read."
)


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
    optimizer: str = _OPTIMIZER,
    price: str = options.PRICE,
    goodput: str = _GOODPUT,
    against: Path | None = options.AGAINST,
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
    from nearpeak.api.training.chakra_traces import write_chakra_traces
    from nearpeak.api.training.goodput_words import goodput_in_words
    from nearpeak.api.training.job_plan import FRAMEWORKS, plan_training
    from nearpeak.core.systems.plan_words import batch_of, check_batch, training_plan_of
    from nearpeak.reports.systems import training_plan_report as report

    shared.check_writable(html)
    shared.check_writable(trace_out)
    as_json, cluster = options.as_json(json, text, against), _cluster_of(on, fabric)
    check_batch(tokens := _tokens_of(tokens_per_step), sequence, global_batch)
    plan = None
    if parallel:
        plan = training_plan_of(parallel, cluster.device_count, sequence=sequence, global_batch=global_batch,
                                tokens_per_step=tokens, precision=precision,
                                defaults={"framework": FRAMEWORKS.get(stack, "megatron-lm")})  # fmt: skip
    batch = global_batch or batch_of(tokens, sequence, cluster.device_count)
    long_run = goodput_in_words(goodput, cluster.device_count) if goodput else None
    planned = plan_training(
        model, cluster, plan, stack=stack, sequence=sequence, global_batch=batch, precision=precision,
        usd_per_device_hour=usd_of(price), goodput=long_run, optimizer=optimizer,
    )  # fmt: skip
    other = None if against is None else report.difference_of(planned, shared.text_of(against), str(against))
    _write_files(planned, html, trace_out)
    if chakra_out is not None:
        write_chakra_traces(model, planned.plan, cluster, chakra_out, stack)
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(other or report.document_of(planned), why=why)


def _cluster_of(on: str, fabric: str) -> "Cluster":
    """Return the cluster that a plan is asked for."""
    from nearpeak.api.training.job_plan import MOST_DEVICES
    from nearpeak.targets.clusters import cluster_of

    cluster = cluster_of(on, fabric)
    if cluster.device_count > MOST_DEVICES:
        raise SpecError(f"--on {on}: plans are answered for at most {MOST_DEVICES:,} devices")
    return cluster


def _write_files(planned: "PlannedTraining", html: Path | None, trace_out: Path | None) -> None:
    """Write the page and the trace that were asked for."""
    from nearpeak.reports.systems import training_plan_report as report

    shared.write_page(html, report.document_of(planned))
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
