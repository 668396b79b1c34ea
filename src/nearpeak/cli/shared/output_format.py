"""Choice between text and JSON, the same for every command that prints both: `--text` and `--json`."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import typer

from nearpeak.cli.shared.case_arguments import TABLES
from nearpeak.cli.shared.options import JSON, JSON_LINES, TEXT, as_json


def add_text_option(app: typer.Typer) -> None:
    """Give every command of an application that takes `--json` the option `--text`, and tell it which one holds.

    The parameter `json` of a command then says whether to print JSON, whatever decided it.
    """
    for command in _commands(app):
        if command.callback is not None:
            command.callback = with_text_option(command.callback)


def with_text_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with `--text` beside its `--json`; one without `--json`, or with both, stays as it is.

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
    if option is None or TEXT in defaults:
        return command
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

    vars(run)["__signature__"] = inspect.Signature(parameters)  # what typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _commands(app: typer.Typer) -> Iterator[Any]:
    """Yield the descriptions of all commands of an application, those of its groups included."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)
