"""Choice between text and JSON, the same for every command: `--text` and `--json`."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import TextIOBase
from typing import Any, TextIO

import typer

from nearpeak.base.canonical_json import canonical_json
from nearpeak.cli.shared.case_arguments import TABLES
from nearpeak.cli.shared.options import JSON, JSON_LINES, TEXT, as_json

MESSAGES = typer.Option(False, "--json", help='Print each line as JSON: {"message": …}.')


class MessageLines(TextIOBase):
    r"""Stream that passes each line on as a JSON object; lines that are objects already stay as they are.

    >>> lines = MessageLines(sys.stdout)
    >>> lines.write("wrote 3 pages\n{}\n")
    {"message":"wrote 3 pages"}
    {}
    17
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream."""
        self._stream, self._begun = stream, ""

    def write(self, text: str) -> int:
        """Write the lines that a text ends, and keep the one that it begins."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, lines):
            self._stream.write(f"{line if line.startswith('{') else canonical_json({'message': line})}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the stream below."""
        self._stream.flush()

    def close(self) -> None:
        """Write the line that was begun; the stream below stays open."""
        if self._begun:
            self.write("\n")
        super().close()


def add_text_option(app: typer.Typer) -> None:
    """Give every command of an application the options `--text` and `--json`, and tell it which one holds.

    The parameter `json` of a command then says whether to print JSON, whatever decided it.
    """
    for command in _commands(app):
        if command.callback is not None:
            command.callback = with_text_option(command.callback)


def with_text_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with `--text` beside its `--json`; one with both stays as it is.

    One without `--json`, which prints no more than lines of what it did, gets both: each line is then a JSON object.
    Commands with `JSON_LINES` print rows of cases as JSON into pipes; where they also take one case in words, they
    answer it with text there.

    >>> def shown(json: bool = JSON) -> bool:
    ...     return json
    >>> with_text_option(shown)(json=False, text=True), with_text_option(shown)(json=True, text=False)
    (False, True)
    """
    parameters = list(inspect.signature(command).parameters.values())
    defaults = [parameter.default for parameter in parameters]
    option = next((option for option in (JSON, JSON_LINES) if option in defaults), None)
    if TEXT in defaults:
        return command
    if option is None:
        return _with_messages(command, parameters)
    place = defaults.index(option)
    name = parameters[place].name
    text = inspect.Parameter("text", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=TEXT, annotation=bool)
    parameters.insert(place + 1, text)

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        words = values.get("words") or [".jsonl"]
        is_table = values.get("cases") is not None or words[0].lower().endswith(TABLES)
        values[name] = as_json(json=values[name], text=values.pop("text"), is_data=option is JSON_LINES and is_table)
        return command(**values)

    return _with_parameters(run, parameters)


def _with_messages(command: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """Return a command that prints lines with `--text` and `--json`; what it says on stderr stays apart from data."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    added = [
        inspect.Parameter(name, kind, default=default, annotation=bool)
        for name, default in (("in_messages", MESSAGES), ("in_words", TEXT))
    ]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        if not as_json(json=values.pop("in_messages"), text=values.pop("in_words")):
            return command(**values)
        out, messages = MessageLines(sys.stdout), MessageLines(sys.stderr)
        with out, messages, redirect_stdout(out), redirect_stderr(messages):
            return command(**values)

    return _with_parameters(run, [*parameters, *added])


def _with_parameters(run: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """Return a command whose parameters typer reads as these."""
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _commands(app: typer.Typer) -> Iterator[Any]:
    """Yield the descriptions of all commands of an application, those of its groups included."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)
