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
_VERSION = re.compile(r"v\d+[a-z0-9.]*")
# What a URL copied from elsewhere may end in.
_CALLS = ("/chat/completions", "/completions", "/models")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Headers that say where and how long a request is: ours to write.
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server; `key` and the values of `headers` are secrets: they stay out of files and messages.

    `url` may end in a version of the API (`/v1`, `/api/paas/v4`) or not, and is then followed by `/v1`; `base` stands
    in the place of all that. `ca_file` names a PEM file with the only authority to trust; `headers` are sent with
    every request.
    """

    url: str
    chat: bool = False
    key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    base: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        shown = _without_secrets(self.url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise UserError(
                f"--url {shown}: takes no user name, no query and no fragment: give a key by --key-env or --header-env"
            )
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good or _VISIBLE.search(parts.path):
            raise UserError(f"--url {shown}: not the URL of a server: give one such as http://127.0.0.1:8000")
        if self.base is not None and (not self.base.startswith("/") or _VISIBLE.search(self.base) or "?" in self.base):
            raise UserError(f"--path {self.base!r}: not a path: give one such as /v1 or /openai/v1")
        if parts.path.rstrip("/").endswith("/chat/completions") and not self.chat and self.base is None:
            raise UserError(f"--url {shown}: a path of chat: give --api chat as well")
        for name, value in (*self.headers.items(), ("key", self.key or "")):
            if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
                raise UserError(f"header {name!r}: not the name of a header that can be added")
            if re.search(r"[\r\n\0]", value) or not value.isascii():
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
    def authority(self) -> str:
        """Host and port as they stand in a request."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must stand nowhere."""
        return tuple(filter(None, (self.key, *self.headers.values())))

    @property
    def api(self) -> str:
        """The path under which the API lies, such as `/v1`."""
        if self.base is not None:
            return _call_cut_off(self.base)
        path = _call_cut_off(urlsplit(self.url).path)
        return path if _VERSION.fullmatch(path.rpartition("/")[2]) else f"{path}/v1"

    @property
    def root(self) -> str:
        """The path under which what is no part of the API lies, such as /health."""
        path = _call_cut_off(urlsplit(self.url).path)
        head, _, last = path.rpartition("/")
        return head if _VERSION.fullmatch(last) else path

    @property
    def path(self) -> str:
        """The path that requests are posted to."""
        return f"{self.api}/chat/completions" if self.chat else f"{self.api}/completions"

    def added(self) -> dict[str, str]:
        """The headers that every request has besides: the key where no header of the user's takes its place."""
        given = dict(self.headers)
        if self.key and "authorization" not in map(str.lower, given):
            return {"Authorization": f"Bearer {self.key}"} | given
        return given

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
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {self.authority}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            # A compressed stream would arrive in the compressor's rhythm instead of the engine's.
            "Accept-Encoding: identity",
        ]
        lines += [f"{name}: {value}" for name, value in self.added().items()]
        return ("\r\n".join(lines) + "\r\n").encode()

    def notes(self) -> list[str]:
        """What a user may not expect."""
        proxies = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.upper())]
        return [f"{', '.join(proxies)}: set, and not used: requests go to {self.host} directly"] if proxies else []


def key_from(variable: str) -> str:
    """The API key in an environment variable; UserError where it is not set."""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"environment variable {variable} is empty: put the endpoint's key there")
    return key


def headers_from(given: Iterable[str]) -> dict[str, str]:
    """Headers whose values stand in environment variables, each given as NAME=VARIABLE; UserError otherwise."""
    headers = {}
    for one in given:
        name, equals, variable = one.partition("=")
        if not equals or not _TOKEN.fullmatch(name) or not variable:
            raise UserError("--header-env takes NAME=VARIABLE, such as x-api-key=GATEWAY_KEY")
        value = os.environ.get(variable, "").strip()
        if not value:
            raise UserError(f"--header-env {name}: environment variable {variable} is empty: put the value there")
        headers[name] = value
    return headers


def _call_cut_off(path: str) -> str:
    path = path.rstrip("/")
    for call in _CALLS:
        if path.endswith(call):
            return path[: -len(call)].rstrip("/")
    return path


def _without_secrets(url: str) -> str:
    """A URL without what may be a password or a key in it."""
    return re.sub(r"//[^/?#]*@", "//", re.sub(r"[?#].*", "", url, flags=re.DOTALL))


def finish_head(head: bytes, request_id: str, body_length: int) -> bytes:
    """A request's head, its id with what no header may hold replaced by `_`."""
    return b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n" % (head, _sendable(request_id).encode(), body_length)


def is_of(request_id: str, named: Iterable[str]) -> bool | None:
    """Whether one of the ids that an answer bears is its request's own; None where it bears none.

    Servers that take X-Request-Id for theirs put their own word before it, such as `cmpl-`.
    """
    own = _sendable(request_id)
    found = None
    for one in named:
        if one:
            if own in (one, one.partition("-")[2]):
                return True
            found = False
    return found


def _sendable(request_id: str) -> str:
    return _VISIBLE.sub("_", request_id)
