"""A mock server on a free port, and what is said to it."""

import asyncio
import csv
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from harness.mock.options import MockOptions
from harness.mock.serve import running
from harness.mock.server import MockServer

QUICK: dict[str, Any] = {"port": 0, "ttft_ms": 1.0, "itl_ms": 0.1}
Talk = Callable[[MockServer, aiohttp.ClientSession], Awaitable[None]]


def with_server(talk: Talk, **options: Any) -> MockServer:
    """Start a server on a free port, talk to it, stop it."""

    async def main() -> MockServer:
        async with running(MockOptions(**(QUICK | options))) as server, aiohttp.ClientSession(server.url) as client:
            await talk(server, client)
        return server

    return asyncio.run(main())


def request_body(max_tokens: int | None = 5, *, chat: bool = False, **more: Any) -> dict[str, Any]:
    prompt = {"messages": [{"role": "user", "content": "x" * 40}]} if chat else {"prompt": [5, 6, 7]}
    return {"model": "mock", **prompt, "max_tokens": max_tokens, "stream": True, **more}


def events_of(raw: bytes) -> list[Any]:
    """The events of a whole stream, [DONE] checked and left out."""
    parts = raw.decode().split("\n\n")
    assert parts[-1] == ""
    assert parts[-2] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def path_of(chat: bool) -> str:
    return "/v1/chat/completions" if chat else "/v1/completions"


def log_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def texts_of(events: list[Any]) -> list[str]:
    choices = [event["choices"][0] for event in events if event["choices"]]
    return [choice["delta"]["content"] if "delta" in choice else choice["text"] for choice in choices]


async def outcome(client: aiohttp.ClientSession, chat: bool = False, **more: Any) -> str:
    """How a request ended, seen from the client."""
    try:
        async with client.post(path_of(chat), json=request_body(6, chat=chat, **more)) as answer:
            if answer.status != 200:
                return f"{answer.status} {answer.headers.get('Retry-After', '')}".strip()
            raw = await answer.read()
    except aiohttp.ClientPayloadError:
        return "cut within"
    except aiohttp.ServerDisconnectedError:
        return "cut before"
    if not more.get("stream", True):
        return "ok"
    events = events_of(raw)
    if "error" in events[-1]:
        return f"{len(texts_of(events[:-1]))} then {events[-1]['error']['code']}"
    return "ok"
