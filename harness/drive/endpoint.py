"""Where requests go: the URL taken apart, the headers of every request, TLS, and the notes a user should see."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness.core.errors import UserError

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_VISIBLE = re.compile(r"[^!-~]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server; `key` is a secret and stays out of every file and message.

    `url` may end in `/v1` or not. `ca_file` names a PEM file with the only authority to trust; `headers`
    are sent with every request.
    """

    url: str
    chat: bool = False
    key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise UserError(f"--url {self.url}: not the URL of a server: give one such as http://127.0.0.1:8000")
        if parts.username or parts.query:
            raise UserError("--url takes no user name and no query: give the key in an environment variable")
        for name, value in (*self.headers.items(), ("key", self.key or "")):
            if re.search(r"[\r\n\0]", name + value) or not (name + value).isascii():
                raise UserError(f"header {name!r}: a value of one line in ASCII is needed")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Name or address, without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The URL's port, or its scheme's."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    @property
    def path(self) -> str:
        """The path that requests are posted to."""
        base = urlsplit(self.url).path.rstrip("/").removesuffix("/v1")
        return f"{base}/v1/chat/completions" if self.chat else f"{base}/v1/completions"

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, None of a plain connection; UserError where the CA file cannot be read."""
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"{self.ca_file}: no readable PEM file of an authority ({error})") from None

    def head(self) -> bytes:
        """The part of a request's head that is the same for all; `finish_head` ends it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            # A compressed stream would arrive in the compressor's rhythm instead of the engine's.
            "Accept-Encoding: identity",
        ]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n").encode()

    def notes(self) -> list[str]:
        """What a user may not expect."""
        found = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.upper())]
        return [f"{', '.join(found)}: set, and not used: requests go to {self.host} directly"] if found else []


def key_from(variable: str) -> str:
    """The API key in an environment variable; UserError where it is not set."""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"environment variable {variable} is empty: put the endpoint's key there")
    return key


def finish_head(head: bytes, request_id: str, body_length: int) -> bytes:
    """A request's head, its id with what no header may hold replaced by `_`."""
    return b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n" % (head, _sendable(request_id).encode(), body_length)


def is_of(request_id: str, named: Iterable[str]) -> bool | None:
    """Whether one of the ids that an answer bears is its request's own; None where it bears none.

    Servers that take X-Request-Id for theirs put their own word before it, such as `cmpl-`.
    """
    own = _sendable(request_id)
    ids = [one for one in named if one]
    return any(own in (one, one.partition("-")[2]) for one in ids) if ids else None


def _sendable(request_id: str) -> str:
    return _VISIBLE.sub("_", request_id)
