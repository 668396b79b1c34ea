"""Command `nearpeak plan loader`: a data loader with worker processes and a page cache."""

import re
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.core.edge.loader_answer import LoaderAnswer, LoaderCase
from nearpeak.errors import SpecError
from nearpeak.systems.edge.loader_plan import plan_loader

_MEASURE = typer.Option(
    "", "--measure", help="Measure a built-in model and its data here: lenet5, resnet18, mobilenetv3."
)
_TIMES = typer.Option(
    None, "--times", help="Recorded times of single items, one a line ('5.2 ms', or seconds): replays an epoch."
)
_CORES = typer.Option(
    "", "--cores", help="Cores that workers share, e.g. 4; '4+cpu' where the compute takes part of them too."
)
_MOST_ITEM_S = 86_400.0
"""Longest time of one item that is taken for one."""


def loader(
    files: int = typer.Option(0, "--files", min=0, help="Files, or items, of the data set."),
    size: str = typer.Option("", "--bytes", help="Mean size of a file, e.g. 27KB."),
    compute: str = typer.Option("", "--compute", help="Forward, backward and optimizer of one batch, e.g. 41ms."),
    prep: str = typer.Option("", "--prep", help="Decoding and transforms of one item on one core, e.g. 5.2ms/item."),
    read: str = typer.Option("", "--read", help="Rate of the storage for these files, e.g. 18MB/s."),
    ram: str = typer.Option("", "--ram", help="Memory that is left for the page cache, e.g. 4GB."),
    batch: int = typer.Option(16, "--batch", min=1, help="Items of a batch."),
    workers: str = typer.Option("0,1,2,4", "--workers", help="Numbers of worker processes."),
    copy: str = typer.Option("", "--copy", help="Copy of a batch to the device, not overlapped, e.g. 1ms."),
    prefetch: int = typer.Option(2, "--prefetch", min=1, help="Batches that each worker loads ahead."),
    cores: str = _CORES,
    order: str = typer.Option("random", "--order", help="Order of the files in each epoch: random or same."),
    cache: str = typer.Option("lru", "--cache", help="Page cache: lru, or minio (what is in stays in)."),
    times: Path | None = _TIMES,
    measure: str = _MEASURE,
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Show how long a data loader lets an epoch take, what stalls it, and what each remedy gains.

    Time per batch is split into compute, copies, preparation and storage; epochs after the first read from the page
    cache what it still holds. --times adds an epoch with times that differ, and what one slow item holds up. --measure
    takes the times from three short runs on this machine: data in memory, cached files, files from storage.
    """
    from nearpeak.reports.systems import loader_plan_report as report

    shared.check_writable(html)
    as_json, counts = shared.as_json(json=json, text=text), counts_of(workers, "--workers")
    if measure:
        if any((size, compute, prep, read, copy, cores, times)):
            raise SpecError("--measure: finds sizes, times, rates and cores itself; give --files and --ram at most")
        answer = _measured(measure, counts, batch=batch, files=files, prefetch=prefetch, ram=ram)
    else:
        needed = {"--files": files, "--bytes": size, "--compute": compute, "--prep": prep, "--read": read, "--ram": ram}
        if missing := [name for name, value in needed.items() if not value]:
            raise SpecError(f"{missing[0]}: is missing; state all of {', '.join(needed)}, or --measure MODEL")
        core_count, is_shared = _cores_of(cores)
        case = LoaderCase(
            file_count=files, file_bytes=_quantity(size, "B", "--bytes"), batch=batch,
            compute_s=shared.seconds_of(compute, "--compute"),
            prep_s=shared.seconds_of(prep.removesuffix("/item"), "--prep"),
            read_bytes_per_s=_quantity(read, "B/s", "--read"), ram_bytes=_quantity(ram, "B", "--ram"),
            copy_s=shared.seconds_of(copy, "--copy") if copy else 0.0, prefetch_count=prefetch, core_count=core_count,
            is_compute_on_cores=is_shared, order=order, replacement=cache,
        )  # fmt: skip
        answer = plan_loader(case, counts, item_times_s=() if times is None else _times_of(times))
    shared.write_page(html, report.document_of(answer))
    shared.tell(lambda: report.document_of(answer), lambda: report.to_json(answer), json=as_json, why=why)


def _measured(model: str, workers: tuple[int, ...], *, batch: int, files: int, prefetch: int, ram: str) -> LoaderAnswer:
    from nearpeak.api.edge.loader_measurement import measured_loader
    from nearpeak.base.folders import cache_folder

    with shared.progress("measuring the loader"):
        return measured_loader(
            model, workers, cache_folder() / "train-bench", batch=batch, item_count=files, prefetch_count=prefetch,
            ram_bytes=_quantity(ram, "B", "--ram") if ram else None,
        )  # fmt: skip


def counts_of(text: str, option: str, least: int = 0) -> tuple[int, ...]:
    """Return the different whole numbers of an option.

    >>> counts_of("0,1,4", "--workers")
    (0, 1, 4)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and least <= int(word) <= 1024 for word in words) or len(set(words)) < len(words):
        raise SpecError(f"{option} {text!r}: is no list of different numbers of {least} to 1024; e.g. 0,1,2,4")
    return tuple(int(word) for word in words)


def _quantity(text: str, unit: str, option: str) -> float:
    """Return the quantity of an option; K is taken for k, as file sizes are often written.

    >>> _quantity("27KB", "B", "--bytes")
    27000.0
    """
    from nearpeak.units import parse

    try:
        return parse(re.sub(r"(?<=[0-9 ])K(?=B)", "k", text), unit)
    except SpecError as error:
        raise SpecError(f"{option}: {error}") from None


def _cores_of(text: str) -> tuple[int, bool]:
    """Return the cores of `--cores`, and whether the compute takes part of them.

    >>> _cores_of("4"), _cores_of("2+cpu"), _cores_of("")
    ((4, False), (2, True), (0, False))
    """
    count = text.removesuffix("+cpu")
    if text and not (count.isdecimal() and 1 <= int(count) <= 4096):
        raise SpecError(f"--cores {text!r}: is no number of cores; e.g. 4, or 4+cpu where the trainer computes on them")
    return int(count or 0), text.endswith("+cpu")


def _times_of(path: Path) -> tuple[float, ...]:
    """Return the recorded times of a file, one a line."""
    lines = [line.strip() for line in shared.text_of(path).splitlines()]
    times_s = tuple(shared.seconds_of(line, f"{path}", "s") for line in lines if line and not line.startswith("#"))
    if times_s and max(times_s) > _MOST_ITEM_S:
        raise SpecError(f"{path}: an item takes {max(times_s):g} s; at most {_MOST_ITEM_S:g} s is right")
    if not times_s:
        raise SpecError(f"{path}: holds no times; write one a line, e.g. 5.2 ms")
    return times_s
