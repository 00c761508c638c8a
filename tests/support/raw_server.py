"""A server in a thread that answers each request with bytes as they are given, however odd."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

# Of a request's method and path, and its body: the bytes of the answer, in the parts in which they are sent.
Answers = Callable[[str, bytes], Iterable[bytes]]


def plain(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def json_answer(value: object, status: str = "200 OK") -> bytes:
    return plain(json.dumps(value).encode(), status)


@dataclass
class RawServer:
    answers: Answers
    port: int = 0
    asked: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            data = b""
            while not self.ended.is_set():
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                size = int(found[1]) if found else 0
                while len(data) < size:
                    data += connection.recv(65536)
                body, data = data[:size], data[size:]
                asked = " ".join(head.decode().split(" ", 2)[:2])
                self.asked.append(asked)
                self.heads.append(head)
                for part in self.answers(asked, body):
                    if self.ended.is_set():
                        return
                    connection.sendall(part)

    def wait(self, seconds: float) -> None:
        """Lets so long pass, or less where the test has ended."""
        self.ended.wait(seconds)


@contextlib.contextmanager
def raw_server(answers: Answers) -> Iterator[RawServer]:
    """A server under way."""
    with raw_server_of(lambda _: answers) as server:
        yield server


@contextlib.contextmanager
def raw_server_of(make: Callable[[RawServer], Answers]) -> Iterator[RawServer]:
    """A server whose answers look at it."""
    server = RawServer(lambda _, __: ())
    server.answers = make(server)
    listener = socket.create_server(("127.0.0.1", 0))
    server.port = listener.getsockname()[1]
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=server.converse, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield server
    finally:
        server.ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()
