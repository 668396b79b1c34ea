"""Options, argument types and helpers that several commands share."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nearpeak.cli.shared.completion import targets
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import BEST_SOFTWARE
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError, shown

if TYPE_CHECKING:
    from nearpeak.reports.document import Document

TARGET = typer.Option(
    [], "--target", "-t", help="Device, partition (h100_sxm:1g.10gb), cpu, or a TOML file. Repeatable.",
    autocompletion=targets,
)  # fmt: skip
ONE_TARGET = typer.Option(
    [], "--target", "-t", help="One device: a name, partition (h100_sxm:1g.10gb), cpu, or a TOML file.",
    autocompletion=targets,
)  # fmt: skip
EDITS = typer.Option([], "--set", help='What-if edit of every target, e.g. dram.bandwidth="8 TB/s". Repeatable.')
POLICY = typer.Option("strict", "--policy", help="Units that may form products: strict, tf32 or hard.")
ALGORITHM = typer.Option("classical", "--algorithm", help="How products are formed: classical, or any (Winograd, …).")
NO_CREDIT = typer.Option(False, "--no-output-credit", help="Charge outputs that could stay in the last cache.")
JSON = typer.Option(False, "--json", help="Print JSON instead of text.")
JSON_LINES = typer.Option(
    False, "--json", help="Print JSON instead of text; rows of cases are JSON lines in a pipe anyway."
)
TEXT = typer.Option(False, "--text", help="Print text, as without --json; rows of cases are text in a pipe, too.")
SOFTWARE = typer.Option(
    BEST_SOFTWARE, "--software", help="Framework: vllm, trtllm, sglang, pytorch; best: of those measured, case by case."
)
EXECUTION = typer.Option(
    "", "--execution", help="How the step is submitted: eager, graph or compiled; by default as its source runs."
)
WHY = typer.Option(False, "--why", help="Print also what the answer rests on: parts, assumptions, policy, provenance.")

FABRIC = typer.Option(
    "", "--fabric", help="Collectives: network between nodes (ib400), with ports of a node (ib_hdr:4), or a TOML file."
)
STRIDE = typer.Option(1, "--stride", help="Collectives with --fabric: distance of neighbouring ranks of the group.")


class Listing(TyperGroup):
    """A command of commands whose help shows what each does whole, in as many lines as that takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with the first sentence of each."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=400))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class WithExample(TyperCommand):
    """A command whose help may end with an example file, unindented, so that it works when pasted."""

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Write the example as it stands."""
        formatter.write(f"\n{self.epilog.strip()}\n" if self.epilog else "")


def group_of(text: str, listing: type[Listing] = Listing) -> typer.Typer:
    """Return an empty command of commands that `text` describes."""
    return typer.Typer(cls=listing, help=text, no_args_is_help=True, rich_markup_mode=None)


def targets_of(names: list[str], edits: list[str], policy: str = "strict") -> list[Target]:
    """Return the targets of the options; at least one is needed.

    Args:
        policy: units that may form products: with `tf32` those for TF32 form products of fp32, too.
    """
    from nearpeak.prediction.product_units import with_rounding
    from nearpeak.targets import target_of

    if not names:
        raise SpecError("--target: is missing; e.g. --target h200_sxm ('nearpeak show targets' lists all)")
    rules = Policy(dtype=policy)
    return [with_rounding(target_of(name, edits), rules.dtype) for name in names]


def policy_of(policy: str, algorithm: str, no_credit: bool) -> Policy:
    """Return the bound policy of the options."""
    return Policy(dtype=policy, algorithm=algorithm, output_credit=not no_credit)


_LONG_S = {"min": 60.0, "h": 3600.0}


def bytes_of(text: str) -> int:
    """Return the bytes of `--memory`."""
    from nearpeak.units import parse_count

    try:
        return parse_count(text, "B")
    except SpecError as error:
        raise SpecError(f"--memory: {error}") from None


def seconds_of(text: str, option: str, unit: str = "") -> float:
    """Return the seconds that an option states, with or without a space before the unit; minutes and hours too.

    Args:
        unit: of a number without one; none where each needs its own.

    >>> seconds_of("300ms", "--budget"), seconds_of("2 s", "--budget"), seconds_of("1.5 h", "--wait")
    (0.3, 2.0, 5400.0)
    """
    from nearpeak.units import parse

    match = re.fullmatch(r"\s*(.*?)\s*([a-zµ]*)\s*", text)
    digits, stated = match.groups() if match else (text, "")
    unit = stated or unit
    factor_s = _LONG_S.get(unit, 1.0)
    try:
        duration_s = factor_s * parse(f"{digits} {'s' if unit in _LONG_S else unit}", "s")
    except SpecError:
        raise SpecError(f"{option} {shown(text)}: is not a time; e.g. '300 ms', '60 s', '20 min' or '2 h'") from None
    if duration_s <= 0:
        raise SpecError(f"{option} {shown(text)}: must be more than 0")
    return duration_s


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all, and say so; a device such as /dev/null is written to."""
    sys.stderr.write(f"wrote {write_quietly(path, text)}\n")


def write_page(path: Path | None, document: "Document") -> None:
    """Write a document as an HTML page where a path was given."""
    if path is None:
        return
    from nearpeak.reports.document.html import to_html

    write_whole(path, to_html(document))


def write_quietly(path: Path, text: str) -> Path:
    """Write a file that appears whole or not at all, and return where it is."""
    from nearpeak.base.folders import whole_file

    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path.resolve() if path.is_symlink() else path


def text_of(path: Path) -> str:
    """Return what a text file holds."""
    from nearpeak.base.input_files import text_of_file

    return text_of_file(path)


def on_terminal() -> bool:
    """Say whether people read the output."""
    return sys.stdout.isatty()


def as_json(*, json: bool, text: bool, is_data: bool = False) -> bool:
    """Return whether to print JSON: where it is asked for, and for data that no terminal shows.

    Args:
        is_data: whether the output is rows of cases that another program reads.

    >>> as_json(json=True, text=True)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --json and --text: exclude each other; give one
    """
    if json and text:
        raise SpecError("--json and --text: exclude each other; give one")
    return json or (is_data and not text and not on_terminal())


def check_writable(path: Path | None) -> None:
    """Refuse a path that cannot become a file, before any work is done for it."""
    if path is None or (path.exists() and not path.is_file() and not path.is_dir()):  # a device is written to
        return
    if not path.resolve().parent.is_dir():
        raise SpecError(f"{path}: its folder does not exist")
    if path.is_dir():
        raise SpecError(f"{path}: is a folder; name a file")
    if not os.access(path.resolve().parent, os.W_OK):
        raise SpecError(f"{path}: its folder may not be written to")


def coloured() -> bool:
    """Say whether the terminal shows colours and the user wants them (https://no-color.org)."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(title: str) -> Iterator[None]:
    """Show on a terminal that something long is under way."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(title)):
        yield


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show on a terminal how far something long has come; gives the function that takes the count done, and words."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(title), total=total)
        yield lambda count, words: bar.update(task, completed=count, description=escape(words))


def tell(
    document_of: "Callable[[], Document]",
    record_of: Callable[[], str],
    *,
    json: bool,
    why: bool = False,
) -> None:
    """Print a report as text, or its record as JSON."""
    if json:
        sys.stdout.write(f"{record_of()}\n")
    else:
        print_document(document_of(), why=why)


def print_document(document: "Document", *, why: bool = False) -> None:
    """Print a report for people, as wide as the terminal is.

    Args:
        why: whether to print what the report folds away (its `Details`) instead of the summary of it.
    """
    from nearpeak.reports.document.terminal import to_terminal

    width = shutil.get_terminal_size().columns
    sys.stdout.write(to_terminal(document, colour=coloured(), width=width, is_unfolded=why))
