"""`bench site serve`: a built site over http, on this machine only unless told otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.pages.build import MARK

# Not what the machine's own tables say of them.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".log": "text/plain; charset=utf-8",
    "": "application/octet-stream",
}


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site and nothing else: no listings, nothing that a link leads to outside of it."""

    extensions_map = TYPES

    def translate_path(self, path: str) -> str:
        """The file of a request; the mark that no request may have where it is no file of the site."""
        root = Path(self.directory).resolve()
        try:
            plain = path.partition("?")[0].partition("#")[0]
            named = Path(super().translate_path(path))
            is_directory = named.is_dir()
            # Of a directory its index is sent: what that leads to counts.
            target = (named / "index.html" if is_directory else named).resolve()
            # A pipe would be waited for.
            if root in target.parents and target.is_file() and (is_directory or not plain.endswith("/")):
                return str(named)
        except (OSError, ValueError, RuntimeError):
            # No file can have such a name.
            pass
        return str(root / "\uffff")

    def list_directory(self, path: Any) -> None:
        """Never: a directory without an index is not there."""
        self.send_error(404)

    def end_headers(self) -> None:
        """Nothing is taken from the browser's memory: the next build shows at once."""
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are no news."""


class _Server(ThreadingHTTPServer):
    """A server that says nothing of a browser that went away."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What is no fault of the connection is a fault of ours, and shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(directory: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serves the site until Ctrl-C; `ready` is told its address. UserError where there is no site, or no such port."""
    if not (directory / MARK).is_file():
        raise UserError(f"{directory}: no site: `bench site build --out {directory}` makes it")
    try:
        server = _Server((host, port), partial(_Handler, directory=str(directory.resolve())))
    except OSError as error:
        raise UserError(f"{host}:{port}: cannot listen there ({error.strerror}): give another --port") from None
    with server:
        ready(f"http://{host}:{server.server_port}/")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return
