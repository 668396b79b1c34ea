"""The command line: one file per command, which parses options, makes one library call and prints the result."""

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from nearpeak.cli.shared.options import Listing, WithExample
from nearpeak.cli.shared.output_format import add_text_option
from nearpeak.errors import EXIT_CODES, NearpeakError, shown

_FOLDERS = {
    path.stem: path.parent.name
    for path in Path(__file__).parent.glob("*/*.py")
    if path.parent.name not in ("shared", "plans")
}
COMMANDS = {stem: _FOLDERS[stem] for stem in sorted(_FOLDERS) if not stem.startswith("_")}
"""The folder of each command; `shared` holds what commands have in common, `plans` the commands of `plan`."""
BARE = {"--telemetry": "--telemetry=100"}
"""Options whose value may be omitted, with the value that this implies."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a place that takes no more."""
_COMPLETING = "_NEARPEAK_COMPLETE"
"""Variable in which a shell says that it completes a command line, as the script of --show-completion does."""
_UsageError: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException" and issubclass(base, Exception)
)


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the command line with every command of this folder, or with some of them.

    The function with the name of its file is the command; a file with several commands has `register` instead.
    """
    app = typer.Typer(
        name="nearpeak",
        cls=Listing,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    app.callback(help=f"{_nearpeak.__doc__}\n\nAn error is one line. Exit codes of every command: {codes}.")(_nearpeak)
    for name in names:
        module = importlib.import_module(f"nearpeak.cli.{COMMANDS[name]}.{name}")
        if hasattr(module, "register"):
            module.register(app)
        else:
            app.command(cls=WithExample, epilog=vars(module).get("EXAMPLE"))(getattr(module, name))
    add_text_option(app)
    return app


def main() -> None:
    """Run the command line and leave with the documented exit code."""
    if sys.getfilesystemencoding().lower() != "utf-8":  # names and words of the command line would be torn apart
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does with what an encoding lacks
    words = [BARE.get(word, word) for word in sys.argv[1:] if word != "--debug"]  # it may stand anywhere
    if sys.stderr.isatty():
        import logging

        logging.basicConfig(format="%(message)s")
        logging.getLogger("nearpeak").setLevel(logging.INFO)
    try:
        code = _run(words)
        sys.stdout.flush()  # a full disk shows here, not when Python ends
        sys.exit(code)
    except NearpeakError as error:
        if "--debug" in sys.argv:
            raise
        _leave(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would show as a traceback
        _leave("stopped", 130)
    except BrokenPipeError:
        _drop_output()
        sys.exit(0)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        _leave(f"{error.filename or _unnamed(error)}: {error.strerror or error}", 2)
    except _UsageError as error:
        _refuse_usage(error)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        _leave(f"{type(error).__name__}: {error}; this is a fault of nearpeak: please report it with --debug", 1)


def _run(words: list[str]) -> int:
    """Run a command and return its exit code.

    Not by `typer.Typer.__call__`, which ends the process itself, with other codes, where output or user break off.
    """
    first = words[0].replace("-", "_") if words else ""
    is_alone = first in COMMANDS and _COMPLETING not in os.environ  # the others need not be imported
    command: Any = typer.main.get_command(application([first] if is_alone else COMMANDS))
    if _COMPLETING in os.environ:  # a shell asks for the words that may follow
        command.main(words, prog_name="nearpeak")
    try:
        with command.make_context("nearpeak", words) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as error:
        return error.exit_code


def _say_version(requested: bool) -> None:
    if requested:
        from nearpeak.api import questions

        sys.stdout.write(f"nearpeak {questions.version() or 'from source'}\n")
        raise typer.Exit


def _nearpeak(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_say_version, help="Show the version."),
) -> None:
    """Measure how near a workload runs to the hardware's peak, and find the next optimization."""


def _unnamed(error: OSError) -> str:
    """Return what an error of the system is about that names no file.

    Files are written whole, by what names them (`folders.whole_file`): what is full without a name is standard output.
    """
    if error.errno not in _FULL:
        return "file"
    _drop_output()
    return "standard output"


def _drop_output() -> None:
    """Let Python end without trying once more to write what standard output does not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_usage(error: BaseException) -> None:
    """Print a usage error in one line; the bare command shows its help instead."""
    _say_value(error)
    text = getattr(error, "format_message", lambda: str(error))()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{text}\n")
        sys.exit(2)
    context = getattr(error, "ctx", None)
    _leave(f"{text} ('{context.command_path if context else 'nearpeak'} --help' shows what there is)", 2)


def _say_value(error: BaseException) -> None:
    """Put the value that an option refuses into its message, where that lacks it but what checked it has kept it."""
    details = getattr(error.__cause__, "errors", None)
    details_of_error, message = details() if callable(details) else (), getattr(error, "message", "")
    if details_of_error and message and "input" in details_of_error[0]:
        vars(error)["message"] = f"got {shown(details_of_error[0]['input'])}; {message[0].lower()}{message[1:]}"


def _leave(message: str, code: int) -> None:
    line = "".join(character if character.isprintable() else " " for character in " ".join(message.split()))
    sys.stderr.write(f"nearpeak: {line}\n")
    sys.exit(code)
