"""Command `nearpeak serve`: the dashboard over a store, served on this machine."""

import os
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
    public: bool = typer.Option(False, "--public", help="Let every user of this machine read, also through a proxy."),
) -> None:
    """Serve a store in the browser: regressions, their certainty, the person in charge, and next steps.

    You alone may read without a token; with --public every user of this machine, with --host all who reach the port.
    Acting on alerts and sending results needs a token ('nearpeak token add'). Nothing is loaded from elsewhere. Ends
    with Ctrl-C.
    """
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    if reports is not None and not reports.is_dir():
        raise SpecError(f"--reports {reports}: is not a folder")
    if repository is not None and not (repository / ".git").exists():
        raise SpecError(f"--repository {repository}: is not a Git repository")
    if private and public:
        raise SpecError("--private: contradicts --public; give one of them")
    try:
        from nearpeak.base.peer_user import knows_users
        from nearpeak.web.http_connection import prepare_process, server_of
        from nearpeak.web.server import LOCAL, application
    except ImportError as error:
        raise MissingExtraError(f"serve: {error.name} is absent; pip install 'nearpeak[web]'") from None
    place, is_local = place_of(store), host in ("127.0.0.1", "localhost", "::1")
    is_own = is_local and not public and not private
    is_signed_in = is_own and not knows_users()  # who asks is then told by a token
    token = f"np_{secrets.token_urlsafe(24)}" if write or is_signed_in else ""
    prepare_process()
    with open_store(place) as opened, _listening(host, port) as listening:
        app = application(
            opened, reports=reports, is_private=private or is_signed_in, run_token=token, is_warm=True,
            hosts=LOCAL if is_local else None, repository=repository, run_scope="submit" if write else "read",
            own_uid=os.geteuid() if is_own and not is_signed_in else None,
        )  # fmt: skip
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        sys.stdout.write(f"{opened.name}: {address}/\n")
        if token:
            may = "act on alerts" if write else "read"
            sys.stdout.write(f"may {may} until this ends: {address}/sign-in#{token}\n")
        sys.stdout.flush()
        server_of(app).run(sockets=[listening])


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
