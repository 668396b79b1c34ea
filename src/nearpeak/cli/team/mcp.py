"""Command `nearpeak mcp`: the answers as tools of language models, over standard input and output."""

import sys
from pathlib import Path

import typer

from nearpeak.base.garbage_collection import collector_paused
from nearpeak.cli.shared import options as shared
from nearpeak.errors import MissingExtraError, SpecError


def mcp(
    root: Path = typer.Option(Path(), "--root", help="Folder whose traces may be read; this one by default."),
    allow_run: bool = typer.Option(
        False,
        "--allow-run",
        help="Let validate, measure and compare run code here, functions of the client's included.",
    ),
    schema: bool = typer.Option(False, "--schema", help="Print the tools with what they take, and end."),
    json: bool = shared.JSON,
) -> None:
    """Serve bounds, predictions, checks and measurements to a language model by the Model Context Protocol.

    A client starts this command and talks to it over standard input and output; nothing listens on a network. Tools
    that execute code refuse unless --allow-run is given; they use child processes. Ends when its input ends. The
    protocol is JSON whatever --text and --json say; they choose how --schema prints.
    """
    if not root.is_dir():
        raise SpecError(f"--root {root}: is not a folder")
    with collector_paused():  # what is imported stays, and a client waits for it
        try:
            from nearpeak.mcp_server.stdio_service import schema_text, server_of
        except ImportError as error:
            raise MissingExtraError(f"mcp: {error.name} is absent; pip install 'nearpeak[mcp]'") from None
        server = server_of(root, may_run=allow_run)
    if schema:
        sys.stdout.write(schema_text(server, json=json))
    else:
        server.run("stdio")
