"""Command `nearpeak export`: cases as flashinfer-bench or SOL-ExecBench files, and a store as a static site."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.base.input_files import text_of_file
from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.units import counted

if TYPE_CHECKING:
    from nearpeak.core.work.case import Case


def export(
    words: list[str] = typer.Argument(
        None, metavar="OP AXIS=EXTENT… | WORKLOAD.json", help="A case in words, or a saved workload."
    ),
    to: Path | None = typer.Option(None, "--to", help="Folder for definitions/ and workloads/; created if missing."),
    flavour: str = typer.Option("sol", "--flavour", help="File format: sol (SOL-ExecBench) or flashinfer."),
    static: Path | None = typer.Option(None, "--static", help="New folder for the dashboard of --store as files."),
    store: str | None = STORE,
) -> None:
    """Write cases as definition and workload files that flashinfer-bench and SOL-ExecBench read.

    The reference in each file is the operator's own PyTorch call as ATen calls. Cases that the files cannot state are
    named with the reason. With --static, write the dashboard of a store instead: pages that open without a server, and
    their tables as CSV and JSON; the same store gives the same bytes.
    """
    if static is not None:
        if words or to is not None:
            raise SpecError("export: --static writes the dashboard of --store; it takes neither cases nor --to")
        _export_site(static, store)
        return
    if to is None:
        raise SpecError("export: --to is missing; name the folder to write, or --static for the dashboard of a store")
    from nearpeak.exchange.workload_lines import check_flavour

    check_flavour(flavour)
    cases = _cases(words or [])
    left_out = [reason for case in cases if (reason := _written(case, to, flavour))]
    sys.stderr.write(f"wrote {len(cases) - len(left_out)} of {counted(len(cases), 'case')} below {to}\n")
    for reason in left_out:
        sys.stderr.write(f"left out: {reason}\n")
    if len(left_out) == len(cases):
        raise NotModelledError("export: none of the cases can be stated in these files")


def _export_site(folder: Path, store: str | None) -> None:
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of
    from nearpeak.web.static_site import export_site

    with open_store(place_of(store)) as opened, shared.progress("writing pages"):
        exported = export_site(opened, folder)
    size = f"{exported.size_bytes / 1e6:.1f} MB"
    sys.stderr.write(
        f"wrote {exported.page_count} pages, {exported.file_count} files, {size}: {folder / 'index.html'}\n"
    )


def _cases(words: list[str]) -> list["Case"]:
    """Return the case in words, or the distinct cases of a saved workload."""
    from nearpeak.api.case_words import case_of
    from nearpeak.frontends.files.saved_workload import load_text

    if len(words) == 1 and words[0].endswith(".json"):
        path = Path(words[0])
        if not path.is_file():
            raise SpecError(f"{path}: not found; write one with 'nearpeak capture … --out {path}'")
        return list(load_text(text_of_file(path), path.name).case_counts())
    if not words:
        raise SpecError("export: no case; e.g. nearpeak export gemm m=64 n=64 k=64 dtype=bf16 --to kernels")
    return [case_of(words, "export")]


def _written(case: "Case", folder: Path, flavour: str) -> str:
    """Write the files of one case; return why not, if so."""
    from nearpeak.exchange.case_definition import definition_of
    from nearpeak.exchange.kernel_definition import definition_text
    from nearpeak.exchange.workload_lines import workload_text

    try:
        definition, line = definition_of(case, flavour)
    except NearpeakError as error:
        return str(error)
    for kind, suffix, text in (("definitions", "json", definition_text(definition)),
                               ("workloads", "jsonl", workload_text(line, definition.name, flavour))):  # fmt: skip
        path = folder / kind / case.op / f"{definition.name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        shared.write_quietly(path, text)
    return ""
