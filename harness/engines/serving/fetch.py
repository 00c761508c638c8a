"""One small HTTP call on an endpoint, past any proxy: its deadline and its size hold for the whole of it."""

from __future__ import annotations

import socket
import ssl
import time

import httptools

from harness.drive.endpoint import Endpoint

TIMEOUT_S = 5.0
# Of a head, and of whatever else is no body.
_MOST_HEAD_BYTES = 64 << 10
_MOST_BYTES = 16 << 20


class _Answer:
    """What the parser finds."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.body = bytearray()
        self.whole = False
        self.framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self.framed = True

    def on_headers_complete(self) -> None:
        if not self.whole:
            self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self.whole:
            self.body += data

    def on_message_complete(self) -> None:
        if self.status < 200:
            self.status = 0  # 100 Continue and its like
        else:
            self.whole = True


def fetch(
    endpoint: Endpoint,
    path: str,
    timeout_s: float = TIMEOUT_S,
    *,
    body: bytes | None = None,
    most_bytes: int = _MOST_BYTES,
) -> tuple[int, bytes]:
    """Status and body of a GET, or with a JSON `body` of a POST, of the server's `path`.

    OSError where no whole answer of at most so many bytes comes within `timeout_s`, and where it is no HTTP.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with _connected(endpoint, deadline) as connection:
            connection.settimeout(_left(deadline))
            connection.sendall(_request(endpoint, path, body))
            return _read(connection, deadline, most_bytes)
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {timeout_s:g} s") from None


def _connected(endpoint: Endpoint, deadline: float) -> socket.socket:
    """A connection to the first address that takes one."""
    failure: OSError = OSError("no such host")
    for family, kind, protocol, _, address in socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
            context = endpoint.context()
            if context is None:
                return connection
            connection.settimeout(_left(deadline))
            return context.wrap_socket(connection, server_hostname=endpoint.host)
        except ssl.SSLError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            failure = error
    raise failure


def _request(endpoint: Endpoint, path: str, body: bytes | None) -> bytes:
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        f"Host: {endpoint.authority}",
        "Accept-Encoding: identity",
        "Connection: close",
        *(f"{name}: {value}" for name, value in endpoint.added().items()),
    ]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


def _read(connection: socket.socket, deadline: float, most_bytes: int) -> tuple[int, bytes]:
    answer = _Answer()
    read = 0
    while not answer.whole:
        connection.settimeout(_left(deadline))
        data = connection.recv(1 << 16)
        if not data:
            if answer.status and not answer.framed:
                break
            raise OSError("the connection was closed before the answer's end")
        read += len(data)
        try:
            answer.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise OSError("it wants to speak another protocol") from None
        except httptools.HttpParserError as error:
            if not answer.whole:
                raise OSError(f"no HTTP answer ({error})") from None
        if len(answer.body) > most_bytes or read - len(answer.body) > most_bytes + _MOST_HEAD_BYTES:
            raise OSError(f"an answer of more than {most_bytes >> 20} MiB")
        if not answer.status and read > _MOST_HEAD_BYTES:
            raise OSError(f"{_MOST_HEAD_BYTES:,} bytes without an answer in them")
    return answer.status, bytes(answer.body)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
