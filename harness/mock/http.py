"""HTTP as the mock server speaks it: connections that note when they were read, and plain answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from harness.mock.answers import error_json

JSON = "application/json"
_MAX_BODY = 1 << 26


class Connection(web.RequestHandler):
    """aiohttp's connection that notes when its socket was read, before anything else runs."""

    __slots__ = ("number", "read_ns", "requests")

    def __init__(self, number: int, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(manager, loop=loop, access_log=None)  # type: ignore[arg-type] # aiohttp takes None, its stubs do not
        self.number, self.requests, self.read_ns = number, 0, 0

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.read_ns = time.perf_counter_ns()
        super().data_received(data)


class HttpServer(web.Server):
    """aiohttp's server, with connections of ours and bodies as long as prompts can be; `opened` counts connections."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(handler, request_factory=self._request, handler_cancellation=True, loop=loop)
        self.opened = 0

    def __call__(self) -> web.RequestHandler:
        """A connection that the loop has accepted."""
        self.opened += 1
        return Connection(self.opened - 1, self, self._loop)

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=_MAX_BODY)


def cut_off(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection after what is already written; aiohttp then finds that it cannot finish the answer."""
    if request.transport is not None:
        request.transport.close()
    return response


def json_response(value: Any) -> web.Response:
    """A value as JSON."""
    return web.Response(body=orjson.dumps(value), content_type=JSON)


def error_response(status: int, message: str) -> web.Response:
    """An error as vLLM words it; 429 asks to come back after a second."""
    headers = {"Retry-After": "1"} if status == 429 else None
    return web.Response(status=status, body=error_json(status, message), content_type=JSON, headers=headers)
