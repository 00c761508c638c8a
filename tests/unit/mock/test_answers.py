"""What the mock server answers: streams, whole answers, how many tokens, what is refused."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.mock.server import MockServer
from tests.support.mock_talks import events_of, outcome, path_of, request_body, texts_of, with_server
from tests.support.models import write_bytes_tokenizer


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream(chat: bool, usage: bool) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if usage else {}
        async with client.post(path_of(chat), json=request_body(chat=chat, **options)) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            events = events_of(await answer.read())
        if usage:
            prompt = 10 if chat else 3
            last = events.pop()
            assert last["choices"] == []
            assert last["usage"] == {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
        assert texts_of(events) == [""] * chat + [" the"] * 5
        assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (4 + chat) + ["length"]
        assert all(event["usage"] is None for event in events)
        prefix = "chatcmpl-" if chat else "cmpl-"
        assert {event["id"] for event in events} == {f"{prefix}00000000-0000-4000-8000-000000000000"}
        assert {event["object"] for event in events} == {"chat.completion.chunk" if chat else "text_completion"}
        if chat:
            assert events[0]["choices"][0]["delta"]["role"] == "assistant"

    server = with_server(talk)
    assert len(server.rows) == 1
    assert server.rows[0].output_tokens == server.rows[0].events == 5


@pytest.mark.parametrize("chat", [False, True])
def test_an_answer_in_one_piece(chat: bool) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        async with client.post(path_of(chat), json=request_body(4, chat=chat, stream=False)) as answer:
            said = await answer.json()
        choice = said["choices"][0]
        assert (choice["message"]["content"] if chat else choice["text"]) == " the" * 4
        assert choice["finish_reason"] == "length"
        assert said["usage"]["completion_tokens"] == 4
        assert re.fullmatch(r"(chat)?cmpl-0{8}-0000-4000-8000-0{12}", said["id"])

    server = with_server(talk)
    assert server.rows[0].output_tokens == 4
    assert server.rows[0].first_ns == server.rows[0].last_ns


def test_tokens_per_chunk_and_text() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        async with client.post("/v1/completions", json=request_body(10)) as answer:
            assert texts_of(events_of(await answer.read())) == ['"é\n' * 4, '"é\n' * 4, '"é\n' * 2]

    assert with_server(talk, tokens_per_chunk=4, text='"é\n').rows[0].events == 3


def test_the_role_comes_early_if_told() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        # The first token is due in an hour: what comes now is the role alone.
        async with client.post(path_of(True), json=request_body(chat=True)) as answer:
            event = json.loads((await answer.content.readuntil(b"\n\n")).removeprefix(b"data: "))
            assert event["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert server.metrics.running == 1
            assert server.rows[0].first_ns == 0

    assert with_server(talk, role_early=True, ttft_ms=3_600_000.0).rows[0].fail in ("client", "stop")


def test_how_many_tokens() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        asked: list[tuple[dict[str, Any], int, str]] = [
            (request_body(7, stream=False), 7, "length"),
            (request_body(None, stream=False), 16, "length"),
            (request_body(None, stream=False, max_completion_tokens=3), 3, "length"),
            (request_body(30, stream=False), 20, "stop"),
            (request_body(20, stream=False), 20, "stop"),
            (request_body(30, stream=False, ignore_eos=True), 30, "length"),
        ]
        for request, tokens, finish in asked:
            async with client.post("/v1/completions", json=request) as answer:
                said = await answer.json()
            assert (said["usage"]["completion_tokens"], said["choices"][0]["finish_reason"]) == (tokens, finish)

    with_server(talk, eos_after=20)


def test_prompts_are_counted() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        prompts: list[tuple[Any, int]] = [
            ([1] * 513, 513), ([[1, 2]], 2), ("abcdefgh", 2), ("a", 1), (["é" * 6], 3), ([0], 1)
        ]  # fmt: skip
        for prompt, tokens in prompts:
            async with client.post("/v1/completions", json=request_body(1, prompt=prompt, stream=False)) as answer:
                assert (await answer.json())["usage"]["prompt_tokens"] == tokens
        messages = [
            {"role": "system", "content": "abcd"},
            {"role": "user", "content": [{"type": "text", "text": "efghijk"}]},
            {"role": "assistant", "content": None},
        ]
        async with client.post(
            path_of(True), json=request_body(1, chat=True, messages=messages, stream=False)
        ) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 3

    with_server(talk)


def test_prompts_are_counted_with_a_tokenizer(tmp_path: Path) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        request = request_body(1, prompt="one two three four", stream=False)
        async with client.post("/v1/completions", json=request) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 18

    with_server(talk, tokenizer=str(write_bytes_tokenizer(tmp_path / "tokenizer.json")))


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        ("{", 400, "not JSON"),
        ("[]", 400, "not a JSON object"),
        ('{"prompt": ""}', 400, "not empty"),
        ('{"prompt": []}', 400, "not empty"),
        ('{"prompt": [1, "a"]}', 400, "one list of token ids"),
        ('{"prompt": [true]}', 400, "one list of token ids"),
        ('{"prompt": ["a", "b"]}', 400, "one text"),
        ('{"prompt": "a", "max_tokens": 0}', 400, "max_tokens must be a whole number of at least 1, got 0"),
        ('{"prompt": "a", "max_tokens": true}', 400, "got True"),
        ('{"prompt": "a", "max_tokens": 100}', 400, "maximum context length is 50 tokens"),
        ('{"prompt": "a", "n": 2}', 400, "one choice"),
        ('{"prompt": "a", "model": "gpt"}', 404, "The model `gpt` does not exist."),
    ],
)
def test_requests_that_are_refused(content: str, status: int, says: str) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        async with client.post("/v1/completions", data=content) as answer:
            assert answer.status == status
            error = (await answer.json())["error"]
            assert says in error["message"]
            assert error["code"] == status
        async with client.post(path_of(True), data='{"messages": []}') as answer:
            assert answer.status == 400

    server = with_server(talk, max_model_len=50)
    assert server.rows == []
    assert server.stats()["refused"] == 2


def test_other_paths() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        for path, status in (("/health", 200), ("/ping", 200), ("/nothing", 404), ("/v1/completions", 405)):
            async with client.get(path) as answer:
                assert answer.status == status
        async with client.get("/__reset") as answer:
            assert answer.status == 405
        async with client.get("/v1/models") as answer:
            (card,) = (await answer.json())["data"]
            assert (card["id"], card["max_model_len"]) == ("small/model", 4096)
        async with client.get("/version") as answer:
            assert (await answer.json())["version"].startswith("bench-mock-")

    with_server(talk, model="small/model", max_model_len=4096)


@pytest.mark.parametrize(
    ("kind", "streamed", "whole"),
    [
        ("500", "500", "500"),
        ("429", "429 1", "429 1"),
        ("cut", "cut within", "cut before"),
        ("errevent", "3 then 500", "500"),
    ],
)
def test_every_third_fails(kind: str, streamed: str, whole: str) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        assert [await outcome(client) for _ in range(6)] == ["ok", "ok", streamed] * 2
        assert [await outcome(client, stream=False) for _ in range(3)] == ["ok", "ok", whole]

    server = with_server(talk, fail_every=3, fail_kind=kind)
    assert [row.fail for row in server.rows] == ["", "", kind] * 3
    middle = 3 if kind in ("cut", "errevent") else 0
    assert [row.output_tokens for row in server.rows] == [6, 6, middle] * 2 + [6, 6, 0]
    assert server.stats()["fails"] == {kind: 3}
    assert server.metrics.running == server.metrics.held_tokens == 0


def test_failures_in_turn() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        assert [await outcome(client) for _ in range(5)] == ["500", "429 1", "cut within", "3 then 500", "500"]

    with_server(talk, fail_every=1, fail_kind="mix")


def test_clients_of_older_and_stranger_kinds(caplog: pytest.LogCaptureFixture) -> None:
    async def raw(server: MockServer, content: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        writer.write(content)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        content = json.dumps(request_body(2)).encode()
        head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(content)
        answer = await raw(server, head + content)
        assert answer.startswith(b"HTTP/1.0 200 OK")
        assert b"chunked" not in answer
        assert texts_of(events_of(answer.split(b"\r\n\r\n")[1])) == [" the", " the"]
        assert (await raw(server, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.0 400 ")
        assert await outcome(client) == "ok"

    with_server(talk)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
