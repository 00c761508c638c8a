import asyncio
import csv
import io
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.errors import UserError
from harness.mock.metrics import Metrics
from harness.mock.pacer import Pacer
from harness.mock.server import MockOptions, MockServer, running, serve
from tests.support.places import ROOT

QUICK: dict[str, Any] = {"port": 0, "ttft_ms": 1.0, "itl_ms": 0.1}
Talk = Callable[[MockServer, aiohttp.ClientSession], Awaitable[None]]


def with_server(talk: Talk, **options: Any) -> MockServer:
    """Start a server on a free port, talk to it, stop it."""

    async def main() -> MockServer:
        async with running(MockOptions(**(QUICK | options))) as server, aiohttp.ClientSession(server.url) as client:
            await talk(server, client)
        return server

    return asyncio.run(main())


def body(max_tokens: int | None = 5, *, chat: bool = False, **more: Any) -> dict[str, Any]:
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


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream(chat: bool, usage: bool) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if usage else {}
        async with client.post(path_of(chat), json=body(chat=chat, **options)) as answer:
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
        async with client.post(path_of(chat), json=body(4, chat=chat, stream=False)) as answer:
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
        async with client.post("/v1/completions", json=body(10)) as answer:
            assert texts_of(events_of(await answer.read())) == ['"é\n' * 4, '"é\n' * 4, '"é\n' * 2]

    assert with_server(talk, tokens_per_chunk=4, text='"é\n').rows[0].events == 3


def test_the_role_comes_early_if_told() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        # The first token is due in an hour: what comes now is the role alone.
        async with client.post(path_of(True), json=body(chat=True)) as answer:
            event = json.loads((await answer.content.readuntil(b"\n\n")).removeprefix(b"data: "))
            assert event["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert server.metrics.running == 1
            assert server.rows[0].first_ns == 0

    assert with_server(talk, role_early=True, ttft_ms=3_600_000.0).rows[0].fail in ("client", "stop")


def test_how_many_tokens() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        asked: list[tuple[dict[str, Any], int, str]] = [
            (body(7, stream=False), 7, "length"),
            (body(None, stream=False), 16, "length"),
            (body(None, stream=False, max_completion_tokens=3), 3, "length"),
            (body(30, stream=False), 20, "stop"),
            (body(20, stream=False), 20, "stop"),
            (body(30, stream=False, ignore_eos=True), 30, "length"),
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
            async with client.post("/v1/completions", json=body(1, prompt=prompt, stream=False)) as answer:
                assert (await answer.json())["usage"]["prompt_tokens"] == tokens
        messages = [
            {"role": "system", "content": "abcd"},
            {"role": "user", "content": [{"type": "text", "text": "efghijk"}]},
            {"role": "assistant", "content": None},
        ]
        async with client.post(path_of(True), json=body(1, chat=True, messages=messages, stream=False)) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 3

    with_server(talk)


def test_prompts_are_counted_with_a_tokenizer() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        request = body(1, prompt="one two three four", stream=False)
        async with client.post("/v1/completions", json=request) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 4

    with_server(talk, tokenizer="qwen")


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


async def how(client: aiohttp.ClientSession, chat: bool = False, **more: Any) -> str:
    """How a request ended, seen from the client."""
    try:
        async with client.post(path_of(chat), json=body(6, chat=chat, **more)) as answer:
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
        assert [await how(client) for _ in range(6)] == ["ok", "ok", streamed] * 2
        assert [await how(client, stream=False) for _ in range(3)] == ["ok", "ok", whole]

    server = with_server(talk, fail_every=3, fail_kind=kind)
    assert [row.fail for row in server.rows] == ["", "", kind] * 3
    middle = 3 if kind in ("cut", "errevent") else 0
    assert [row.output_tokens for row in server.rows] == [6, 6, middle] * 2 + [6, 6, 0]
    assert server.stats()["fails"] == {kind: 3}
    assert server.metrics.running == server.metrics.held_tokens == 0


def test_failures_in_turn() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        assert [await how(client) for _ in range(5)] == ["500", "429 1", "cut within", "3 then 500", "500"]

    with_server(talk, fail_every=1, fail_kind="mix")


def test_ids_and_log_pair(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    ids: dict[str, str] = {}

    async def ask(client: aiohttp.ClientSession, number: int) -> None:
        headers = {"X-Request-Id": f'row,"{number}"'}
        async with client.post("/v1/completions", json=body(3), headers=headers) as answer:
            ids[headers["X-Request-Id"]] = events_of(await answer.read())[0]["id"]

    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        await asyncio.gather(*(ask(client, number) for number in range(20)))
        assert not log.exists()
        async with client.get("/__dump") as answer:
            assert (await answer.json())["recs"] == 20
        assert len(log_of(log)) == 20

    with_server(talk, log=log)
    rows = log_of(log)
    assert [int(row["seq"]) for row in rows] == list(range(20))
    assert {row["request_id"]: f"cmpl-{int(row['seq']):08x}" for row in rows} == {k: v[:13] for k, v in ids.items()}
    for row in rows:
        times = [float(row[name]) for name in ("arrival_s", "start_s", "first_s", "last_s", "end_s")]
        assert times == sorted(times)
        assert times[2] - times[0] >= 0.001 - 1e-7, "no token before its time"
        assert (row["output_tokens"], row["prompt_tokens"], row["fail"]) == ("3", "3", "")


def test_connections_are_kept_and_counted() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        for _ in range(3):
            assert await how(client) == "ok"

    server = with_server(talk)
    assert [(row.conn, row.nth_on_conn) for row in server.rows] == [(0, 0), (0, 1), (0, 2)]
    assert server.stats()["conns"] == 1


def test_what_has_no_slot_waits() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        asks = [asyncio.create_task(how(client)) for _ in range(9)]
        while len(server.rows) < 9:
            await asyncio.sleep(0)
        async with client.get("/__stats") as answer:
            stats = await answer.json()
        assert (stats["recs"], stats["active"], stats["waiting"]) == (9, 2, 7)
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)

    server = with_server(talk, slots=2, ttft_ms=3_600_000.0)
    assert {row.fail for row in server.rows} <= {"client", "stop"}
    assert server.metrics.waiting == server.metrics.running == server.metrics.held_tokens == 0


def test_slots_are_given_in_the_order_of_arrival() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        asks = [asyncio.create_task(how(client)) for _ in range(9)]
        most = 0
        while not all(ask.done() for ask in asks):
            await asyncio.sleep(0)
            most = max(most, server.metrics.running)
        assert [await ask for ask in asks] == ["ok"] * 9
        assert most <= 2

    server = with_server(talk, slots=2, ttft_ms=5.0)
    starts = [row.start_ns for row in server.rows]
    assert starts[2:] == sorted(starts[2:])
    assert all(row.first_ns - row.start_ns >= 5_000_000 for row in server.rows)


def test_a_prompt_as_long_as_a_model_takes() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        request = io.BytesIO(json.dumps(body(1, prompt=[100_000] * 300_000, stream=False)).encode())
        async with client.post("/v1/completions", data=request) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 300_000

    with_server(talk, max_model_len=1_000_000)


def test_a_client_that_goes_away_frees_its_slot() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        answer = await client.post(path_of(True), json=body(10_000, chat=True))
        await answer.content.readuntil(b"\n\n")
        answer.close()
        assert await how(client) == "ok"

    server = with_server(talk, slots=1, role_early=True, itl_ms=1.0)
    assert [row.fail for row in server.rows] == ["client", ""]
    assert server.metrics.finished == {"stop": 0, "length": 1, "abort": 1, "error": 0}


def test_jitter_is_the_seed_s() -> None:
    def dues(**options: Any) -> list[list[int]]:
        async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
            for _ in range(200):
                assert await how(client, stream=False) == "ok"

        server = with_server(talk, ttft_ms=0.5, itl_ms=0.25, **options)
        return [[server.due_ns(row)(event) - row.start_ns for event in (0, 1, 1000)] for row in server.rows]

    plain, seeded, other = dues(), dues(jitter=0.5, seed=1), dues(jitter=0.5, seed=2)
    assert plain == [[500_000, 750_000, 250_500_000]] * 200
    assert seeded == dues(jitter=0.5, seed=1)
    assert seeded != other
    factors = [due[2] / 250_500_000 for due in seeded]
    for due, factor in zip(seeded, factors, strict=True):
        assert [round(nominal * factor) for nominal in (500_000, 750_000)] == pytest.approx(due[:2], abs=1)
    assert 0.5 <= min(factors) < 0.55
    assert 1.45 < max(factors) <= 1.5
    assert abs(sum(factors) / 200 - 1) < 0.1


METRIC = re.compile(r'(vllm:\w+)\{engine="0",model_name="mock"(?:,(\w+)="([^"]+)")?\} (\S+)')


def test_metrics_have_vllm_s_names() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        for _ in range(4):
            await how(client)
        async with client.get("/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = await answer.text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        samples = {match.group(1, 3): float(match[4]) for line in lines if (match := METRIC.fullmatch(line))}
        assert len(samples) == len(lines)
        assert samples["vllm:num_requests_running", None] == samples["vllm:num_requests_waiting", None] == 0
        assert samples["vllm:kv_cache_usage_perc", None] == 0
        assert samples["vllm:prompt_tokens_total", None] == 12
        assert samples["vllm:generation_tokens_total", None] == 6 + 6 + 6 + 3
        assert samples["vllm:request_success_total", "length"] == 3
        assert samples["vllm:request_success_total", "error"] == 1
        assert samples["vllm:time_to_first_token_seconds_count", None] == 4
        assert samples["vllm:time_to_first_token_seconds_bucket", "+Inf"] == 4
        assert samples["vllm:time_to_first_token_seconds_bucket", "0.001"] == 0
        assert samples["vllm:time_to_first_token_seconds_sum", None] >= 0.004

    with_server(talk, fail_every=4, fail_kind="errevent")


def test_metrics_of_what_runs_now() -> None:
    metrics = Metrics('a "model"', kv_tokens=100, running=3, waiting=2, held_tokens=25)
    for ttft_s in (0.0005, 0.001, 0.0011, 5000.0):
        metrics.saw_first_token(ttft_s)
    text = metrics.text()
    labels = r'{engine="0",model_name="a \"model\""'
    assert f"vllm:num_requests_running{labels}}} 3.0\n" in text
    assert f"vllm:num_requests_waiting{labels}}} 2.0\n" in text
    assert f"vllm:kv_cache_usage_perc{labels}}} 0.25\n" in text
    for edge, count in (("0.001", 2), ("0.005", 3), ("2560.0", 3), ("+Inf", 4)):
        assert f'vllm:time_to_first_token_seconds_bucket{labels},le="{edge}"}} {count}.0\n' in text


def test_reset_and_stats(tmp_path: Path) -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        for _ in range(3):
            await how(client)
        async with client.get("/__stats") as answer:
            stats = await answer.json()
        assert (stats["gen_requests"], stats["recs"], stats["writes"], stats["tokens"]) == (3, 3, 18, 18)
        assert (stats["active"], stats["waiting"], stats["conns"]) == (0, 0, 1)
        assert sum(stats["late_us_log2"]) == 18
        assert len(stats["late_us_log2"]) == 24
        assert {"cpu_s", "mono", "rtoff"} <= set(stats)
        async with client.post("/__reset?ttft=7&itl=0.5&jit=0") as answer:
            stats = await answer.json()
        assert (stats["recs"], stats["writes"], stats["conns"], sum(stats["late_us_log2"])) == (0, 0, 0, 0)
        async with client.post("/v1/completions", json=body(3)) as answer:
            assert events_of(await answer.read())[0]["id"].startswith("cmpl-00000000-"), "numbers start anew"
        row = server.rows[0]
        assert server.due_ns(row)(2) - row.start_ns == 8_000_000
        for bad in ("ttft=x", "itl=-1", "jit=2", "ttft=nan", "itl=inf"):
            async with client.post(f"/__reset?{bad}") as answer:
                assert answer.status == 400
        assert len(server.rows) == 1

    with_server(talk)


def test_clients_of_older_and_stranger_kinds(caplog: pytest.LogCaptureFixture) -> None:
    async def raw(server: MockServer, content: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        writer.write(content)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        content = json.dumps(body(2)).encode()
        head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(content)
        answer = await raw(server, head + content)
        assert answer.startswith(b"HTTP/1.0 200 OK")
        assert b"chunked" not in answer
        assert texts_of(events_of(answer.split(b"\r\n\r\n")[1])) == [" the", " the"]
        assert (await raw(server, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.0 400 ")
        assert await how(client) == "ok"

    with_server(talk)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


def test_ipv6() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        assert server.url.startswith("http://[::1]:")
        assert await how(client) == "ok"

    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with_server(talk, host="::1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"port": 70_000}, "--port 70000"),
        ({"ttft_ms": -1.0}, "--ttft -1"),
        ({"itl_ms": math.inf}, "--itl inf"),
        ({"ttft_ms": math.nan}, "--ttft nan"),
        ({"jitter": 1.5}, "--jitter 1.5"),
        ({"tokens_per_chunk": 0}, "--tokens-per-chunk 0: give 1 or more"),
        ({"fail_every": -1}, "--fail-every -1"),
        ({"fail_kind": "hang"}, "--fail-kind hang: give one of 500, 429, cut, errevent, mix"),
        ({"slots": -1}, "--slots -1"),
        ({"text": ""}, "--text"),
        ({"kv_tokens": 0}, "--kv-tokens 0"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        MockOptions(**options)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_addresses_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} on 127\.0\.0\.1 is taken: give --port another") as caught:
            serve(MockOptions(port=port))
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1 port 0"):
        serve(MockOptions(port=0, host="192.0.2.1"))
    with pytest.raises(UserError, match="the log cannot be written"):
        serve(MockOptions(port=0, log=tmp_path / "missing" / "log.csv"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_stops_at_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log.csv"
    script = (
        "import sys\nfrom pathlib import Path\nfrom harness.mock.server import MockOptions, serve\n"
        "serve(MockOptions(port=0, ttft_ms=0, itl_ms=3_600_000, log=Path(sys.argv[1])))\n"
    )
    command = [sys.executable, "-c", script, str(log)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    async def cut_off(url: str, process: subprocess.Popen[str]) -> None:
        async with (
            aiohttp.ClientSession(base_url=url) as client,
            client.post("/v1/completions", json=body(9)) as answer,
        ):
            await answer.content.readuntil(b"\n\n")
            process.send_signal(number)
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()

    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "3"}, **pipes) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"mock server for model mock on (http://127\.0\.0\.1:\d+) \(Ctrl-C stops it\)\n", line)
            assert match is not None, line
            asyncio.run(cut_off(match[1], process))
            out, err = process.communicate()
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")
    (row,) = log_of(log)
    assert (row["fail"], row["output_tokens"]) == ("stop", "1")


@pytest.mark.parametrize("timerfd", [True, False])
def test_the_pacer_wakes_in_order_and_never_early(monkeypatch: pytest.MonkeyPatch, timerfd: bool) -> None:
    import time

    if not timerfd:
        monkeypatch.setattr("harness.mock.pacer._timerfd", lambda: None)

    async def main() -> list[int]:
        pacer = Pacer(asyncio.get_running_loop())
        start, woken = time.perf_counter_ns(), []

        async def sleeper(number: int) -> None:
            due = start + number * 400_000
            await pacer.until(due)
            assert time.perf_counter_ns() >= due
            woken.append(number)

        tasks = [asyncio.create_task(sleeper(number)) for number in (9, 3, 27, 0, 12, 1)]
        gone = asyncio.create_task(sleeper(6))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(*tasks)
        pacer.close()
        return woken

    assert asyncio.run(main()) == [0, 1, 3, 9, 12, 27]
