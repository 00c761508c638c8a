import asyncio
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.mock.server import MockServer
from tests.support.mock_talks import events_of, log_of, outcome, path_of, request_body, with_server


def test_ids_and_log_pair(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    ids: dict[str, str] = {}

    async def ask(client: aiohttp.ClientSession, number: int) -> None:
        headers = {"X-Request-Id": f'row,"{number}"'}
        async with client.post("/v1/completions", json=request_body(3), headers=headers) as answer:
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
            assert await outcome(client) == "ok"

    server = with_server(talk)
    assert [(row.conn, row.nth_on_conn) for row in server.rows] == [(0, 0), (0, 1), (0, 2)]
    assert server.stats()["conns"] == 1


def test_what_has_no_slot_waits() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        asks = [asyncio.create_task(outcome(client)) for _ in range(9)]
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
        asks = [asyncio.create_task(outcome(client)) for _ in range(9)]
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
        request = io.BytesIO(json.dumps(request_body(1, prompt=[100_000] * 300_000, stream=False)).encode())
        async with client.post("/v1/completions", data=request) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 300_000

    with_server(talk, max_model_len=1_000_000)


def test_a_client_that_goes_away_frees_its_slot() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        answer = await client.post(path_of(True), json=request_body(10_000, chat=True))
        await answer.content.readuntil(b"\n\n")
        answer.close()
        assert await outcome(client) == "ok"

    server = with_server(talk, slots=1, role_early=True, itl_ms=1.0)
    assert [row.fail for row in server.rows] == ["client", ""]
    assert server.metrics.finished == {"stop": 0, "length": 1, "abort": 1, "error": 0}


def test_jitter_is_the_seed_s() -> None:
    def dues(**options: Any) -> list[list[int]]:
        async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
            for _ in range(200):
                assert await outcome(client, stream=False) == "ok"

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
