"""Command `nearpeak plan retrieval`: nearest vectors with a ranker behind them."""

import sys
from pathlib import Path

import typer

from nearpeak.cli.plans import plan_options as options
from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import usd_of
from nearpeak.errors import SpecError, shown

_ON = typer.Option(..., "--on", help="Device that holds an index or a shard of it, e.g. h100_sxm.")
_DATA = typer.Option(None, "--data", help="Vectors (.npy) to measure recall on; synthetic clusters without it.")
_RANKER = typer.Option("", "--ranker", help="Ranking model: a name, a problem file, or a saved forward step (.json).")


def retrieval(
    vectors: str = typer.Argument(help="Vectors and their elements, e.g. 10Mx128."),
    on: str = _ON,
    qps: float = typer.Option(..., "--qps", help="Queries per second."),
    p99: str = typer.Option(..., "--p99", help="Limit of the 99th percentile of a query, e.g. 20ms."),
    recall: str = typer.Option("95%", "--recall", help="Share of the true nearest vectors that is wanted."),
    nearest: int = typer.Option(100, "--nearest", "-k", min=1, max=2**40, help="Nearest vectors of a query."),
    dtype: str = typer.Option("fp16", "--dtype", help="Format of stored elements."),
    ranker: str = _RANKER,
    candidates: int = typer.Option(100, "--candidates", min=1, max=1_000_000, help="Items ranked for a query."),
    ranker_batch: int = typer.Option(0, "--ranker-batch", min=0, help="Items of a saved step, where it does not say."),
    data: Path | None = _DATA,
    price: str = options.PRICE,
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show the cheapest retrieval service for a recall, a rate and a latency, with a ranker behind it.

    Recall against lists probed is measured on this CPU; batches of the index and of the ranker are predicted; queries
    pass through both queues with a batch window.
    """
    from nearpeak.api.serving.retrieval_plan import plan_retrieval, ranker_of
    from nearpeak.reports.systems import retrieval_plan_report as report
    from nearpeak.targets import target_of
    from nearpeak.units import parse_share

    shared.check_writable(html)
    as_json = shared.as_json(json=json, text=text)
    count, width = _extents_of(vectors)
    if not 0 < qps < 1e7:
        raise SpecError(f"--qps {qps:g}: is not a rate above 0 and below 10 million")
    with shared.progress("measuring recall and simulating services"):
        planned = plan_retrieval(
            target_of(on), vector_count=count, width_count=width, number_format=dtype, found_count=nearest,
            recall_ratio=1.0 if recall == "100%" else parse_share(recall, "--recall"), rate_per_s=qps,
            limit_s=shared.seconds_of(p99, "--p99"), data=data, usd_per_device_hour=usd_of(price),
            ranker=ranker_of(ranker, candidates, ranker_batch) if ranker else None,
        )  # fmt: skip
    shared.write_page(html, report.document_of(planned))
    if as_json:
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(report.document_of(planned), why=why)


def _extents_of(text: str) -> tuple[int, int]:
    """Return how many vectors there are, and the elements of each.

    >>> _extents_of("10Mx128"), _extents_of("50000x64")
    ((10000000, 128), (50000, 64))
    """
    factors = {"k": 10**3, "M": 10**6, "G": 10**9}
    digits, _, width = text.partition("x")
    factor = factors.get(digits[-1:], 1)
    number = digits[:-1] if digits[-1:] in factors else digits
    is_short = len(number) <= 13 and len(width) <= 5  # before int(), which takes time with the square of the digits
    if not (
        is_short
        and number.isdecimal()
        and width.isdecimal()
        and 0 < int(number) * factor < 2**40
        and 0 < int(width) <= 65_536
    ):
        raise SpecError(f"vectors {shown(text)}: is not COUNTxELEMENTS; e.g. 10Mx128")
    return int(number) * factor, int(width)
