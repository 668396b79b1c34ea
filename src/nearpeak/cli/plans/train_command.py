"""Command `nearpeak plan train`: a training step on many devices."""

import re
import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.plans import plan_options as options
from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import usd_of
from nearpeak.errors import SpecError
from nearpeak.units import show

if TYPE_CHECKING:
    from nearpeak.core.systems.fabric import Cluster
    from nearpeak.core.systems.goodput import GoodputReport
    from nearpeak.core.systems.training_job import PlannedTraining

_SEQUENCE_LENGTH, _STACK_OF_SHAPES = 4096, "megatron-lm"
"""Tokens per sequence and software stack of a language model unless stated."""
_ON = typer.Option(..., "--on", help="Devices: count and target, e.g. 64xh100_sxm; a target alone is one device.")
_FABRIC = typer.Option("", "--fabric", help="Network between nodes (ib400, ib_hdr:4, …), or a TOML file.")
_PLAN = typer.Option(
    "", "--parallel",
    help="Plan, e.g. tp=8,pp=2,schedule=interleaved:4,recompute=selective,zero=1,sp; stages=9:8:8:7 are layers of "
    "each stage; captured models take dp, pp, schedule, recompute=full, spatial=2x2 (tiles of images) and "
    "branches=2. Searched for without it.",
)  # fmt: skip
_GOODPUT = typer.Option(
    "", "--goodput", help="Long run with failures, e.g. checkpoint=60s,restart=10min,mtbf=3.1h,spares=2%,repair=1d; "
    "without mtbf by the rate of the Llama 3 report."
)  # fmt: skip
_OPTIMIZER = typer.Option(
    "adamw", "--optimizer", help="adamw, or kfac, shampoo or muon: kfac,factors=10,inverses=100,grid=4 (steps "
    "between updates; ranks that do nothing but inverses)."
)  # fmt: skip
_BATCH = typer.Option(0, "--batch", min=0, help="Captured models: images or samples of a replica's micro-batch.")
_GLOBAL_BATCH = typer.Option(
    0, "--global-batch", min=0, help="Sequences (captured models: images or samples) of one step on all devices. "
    "Unless given, 8 micro-batches for each replica and stage, 8 sequences for each device in a search; captured "
    "models: --batch on each device, whatever the plan."
)  # fmt: skip
_PRECISION = typer.Option(
    "", "--precision", help="bf16, fp16, tf32, fp8-current, fp8-delayed, …; bf16 (fp16 on devices without units for "
    "it), captured models as captured."
)  # fmt: skip
_EXPERT_LOAD = typer.Option(
    "balanced", "--expert-load", help="Routing of a mixture of experts: balanced, uniform (tokens draw at random), "
    "'zipf exponent=0.8', or a file with a number for each expert. A step waits for the busiest rank."
)  # fmt: skip
_STACK = typer.Option(
    "", "--stack", help="Software stack: host times and memory rules; megatron-lm, captured models pytorch-eager."
)  # fmt: skip
_CHAKRA = typer.Option(
    None, "--chakra-out", help="Folder for a Chakra trace of every rank, which network simulators read."
)


def train(
    model: str = typer.Argument(help="Model name, hf:TYPE, a config.json, or a saved training step (.json)."),
    on: str = _ON,
    fabric: str = _FABRIC,
    parallel: str = _PLAN,
    batch: int = _BATCH,
    sequence: int = typer.Option(0, "--sequence", min=0, help="Tokens per sequence; 4096 for language models."),
    global_batch: int = _GLOBAL_BATCH,
    tokens_per_step: str = typer.Option("", "--tokens-per-step", help="Tokens of one step, e.g. 4M."),
    precision: str = _PRECISION,
    stack: str = _STACK,
    expert_load: str = _EXPERT_LOAD,
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
    """Show what one training step of a model takes on a cluster, whether it fits, and what to change.

    Without --parallel the fastest plan that fits is searched for; bounds prove that no other is faster by the same
    predictions. A model that is no transformer of known extents is captured, and its replicas, pipeline stages, tiles
    of images or branches are planned: --parallel pp=2,dp=4 --batch 64. Times are predicted kernels, collectives and
    host times of the software stack, with a 90 % interval.
    """
    from nearpeak.api.training.captured_plan import is_captured, plan_captured
    from nearpeak.reports.systems import training_plan_report as report

    shared.check_writable(html)
    shared.check_writable(trace_out)
    as_json, cluster = options.as_json(json, text, against), _cluster_of(on, fabric)
    before = options.text_before(against, "train", "plan", "time")
    sizes: dict[str, Any] = {"sequence": sequence, "global_batch": global_batch, "precision": precision, "stack": stack}
    common: dict[str, Any] = {"usd_per_device_hour": usd_of(price), "goodput": _long_run(goodput, cluster)}
    if is_captured(model):
        of_shapes = {"--tokens-per-step": tokens_per_step, "--optimizer": optimizer != "adamw",
                     "--expert-load": expert_load != "balanced", "--chakra-out": chakra_out}  # fmt: skip
        for option in (name for name, value in of_shapes.items() if value):
            raise SpecError(f"{model}: {option} is for language models given by shape; a captured step takes --batch")
        planned = plan_captured(model, cluster, parallel, batch=batch, **sizes, **common)
    else:
        words = {"optimizer": optimizer, "batch": batch, "expert_load": expert_load, **sizes, **common}
        planned = _of_shape(model, cluster, parallel, tokens_per_step, words)
    other = None if against is None else report.difference_of(planned, before, str(against))
    _write_files(planned, html, trace_out)
    if chakra_out is not None:
        _write_chakra(model, planned, cluster, stack or _STACK_OF_SHAPES, chakra_out)
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(other or report.document_of(planned), why=why)


def _of_shape(
    model: str, cluster: "Cluster", words: str, tokens_per_step: str, settings: dict[str, Any]
) -> "PlannedTraining":
    """Return the plan of a language model, whose layers follow from its extents."""
    from nearpeak.api.training.job_plan import plan_training, stated_plan
    from nearpeak.core.systems.plan_words import batch_of, check_batch
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    if settings.pop("batch"):
        shape_of(model)  # a name that nobody knows is the nearer cause
        raise SpecError(f"{model}: --batch is for captured models; a language model takes --global-batch")
    sequence, global_batch = settings["sequence"] or _SEQUENCE_LENGTH, settings["global_batch"]
    precision, stack = settings["precision"], settings["stack"] or _STACK_OF_SHAPES
    check_batch(tokens := _tokens_of(tokens_per_step), sequence, global_batch)
    plan, load = None, _load_of(model, settings["expert_load"])
    if words:
        plan = stated_plan(words, cluster, stack=stack, sequence=sequence, global_batch=global_batch,
                           tokens_per_step=tokens, precision=precision, expert_load=load)  # fmt: skip
    count = global_batch or batch_of(tokens, sequence, cluster.device_count)
    stated = {"sequence": sequence, "global_batch": count, "precision": precision, "stack": stack, "expert_load": load}
    return plan_training(model, cluster, plan, **(settings | stated))


def _load_of(model: str, text: str) -> str:
    """Return the rows of experts that a plan states; a file's numbers are weights of the experts.

    Raises:
        SpecError: the model has no experts, or the text is no load of them.
    """
    from nearpeak.base.input_files import reading, text_of_file
    from nearpeak.frontends.huggingface.transformer_models import shape_of
    from nearpeak.ops.shared.expert_load import counts_of

    if text == "balanced":
        return text
    experts = shape_of(model).experts
    if experts is None:
        raise SpecError(f"--expert-load: {model} has no experts; leave it out")
    if Path(text).is_file():
        words = re.split(r"[\s,;]+", text_of_file(text).strip())
        with reading(text, "numbers of experts"):
            shares = [float(word) for word in words]
            if len(shares) != experts.count:
                raise SpecError(f"{text}: holds {len(shares)} numbers, but {model} has {experts.count} experts")
            if min(shares) < 0 or not 0 < max(shares) < inf:
                raise SpecError(f"{text}: the numbers of experts must be at least 0, and one of them above 0")
            text = "histogram weights=" + ",".join(str(round(1e6 * share / max(shares))) for share in shares)
    if text.split()[:1] not in (["uniform"], ["zipf"], ["histogram"]):
        raise SpecError(
            f"--expert-load {text!r}: is not balanced, uniform, 'zipf exponent=0.8', or a file that exists and holds a "
            "number for each expert"
        )
    counts_of(f"{text} top_k={experts.per_token}", experts.per_token, experts.count)  # refuses what is no such load
    return text


def _long_run(words: str, cluster: "Cluster") -> "GoodputReport | None":
    """Return the shares of a long run's time, where they are asked for."""
    from nearpeak.api.training.goodput_words import goodput_in_words

    return goodput_in_words(words, cluster.device_count) if words else None


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


def _write_chakra(model: str, planned: "PlannedTraining", cluster: "Cluster", stack: str, folder: Path) -> None:
    """Write the trace of every rank, and say how much they are."""
    from nearpeak.api.training.chakra_traces import write_chakra_traces

    paths = write_chakra_traces(model, planned.plan, cluster, folder, stack)
    size = sum(path.stat().st_size for path in paths)
    sys.stderr.write(f"wrote {len(paths) - 1} traces and {paths[-1].name} to {folder}, {show(float(size), 'B')}\n")


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
