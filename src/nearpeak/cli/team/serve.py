"""Command `nearpeak serve`: the dashboard over a store, served on this machine."""

import secrets
import socket
import sys
from pathlib import Path

import typer

from nearpeak.cli.team.store import STORE
from nearpeak.errors import MissingExtraError, SpecError

USUAL_PORT = 8642


def serve(
    store: str | None = STORE,
    port: int = typer.Option(USUAL_PORT, "--port", min=0, max=65535, help="Port; 0 selects a free one."),
    host: str = typer.Option("127.0.0.1", "--host", help="Address that is listened on; this machine alone by default."),
    reports: Path | None = typer.Option(None, "--reports", help="Folder of reports (.html) to show with the store."),
    write: bool = typer.Option(False, "--write", help="Print a link that may act on alerts until the server ends."),
    repository: Path | None = typer.Option(
        None, "--repository", help="Git repository whose commits the farm may search; at the same path on its hosts."
    ),
    private: bool = typer.Option(False, "--private", help="Require a token for reading, too."),
) -> None:
    """Serve a store in the browser: regressions, their certainty, the person in charge, and next steps.

    Anyone who reaches the port may read, nobody may write: acting on alerts and sending results needs a token
    ('nearpeak token add'). Nothing is loaded from elsewhere. Ends with Ctrl-C.
    """
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    if reports is not None and not reports.is_dir():
        raise SpecError(f"--reports {reports}: is not a folder")
    if repository is not None and not (repository / ".git").exists():
        raise SpecError(f"--repository {repository}: is not a Git repository")
    try:
        import uvicorn

        from nearpeak.web.server import LOCAL, application
    except ImportError as error:
        raise MissingExtraError(f"serve: {error.name} is absent; pip install 'nearpeak[web]'") from None
    place = place_of(store)
    token = f"np_{secrets.token_urlsafe(24)}" if write else ""
    with open_store(place) as opened, _listening(host, port) as listening:
        hosts = LOCAL if host in ("127.0.0.1", "localhost", "::1") else None
        app = application(
            opened, reports=reports, is_private=private, run_token=token, hosts=hosts, is_warm=True,
            repository=repository,
        )  # fmt: skip
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        sys.stdout.write(f"{opened.name}: {address}/\n")
        if write:
            sys.stdout.write(f"may act on alerts until this ends: {address}/sign-in#{token}\n")
        sys.stdout.flush()
        setting = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", limit_concurrency=500,
            timeout_keep_alive=30, h11_max_incomplete_event_size=64 * 1024, timeout_graceful_shutdown=5,
        )  # fmt: skip
        uvicorn.Server(setting).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        SpecError: the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # so that another server is refused from now on
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise SpecError(
            f"serve: {host}:{port} cannot be listened on: {reason}; --port 0 takes one that is free"
        ) from None
    return listener
