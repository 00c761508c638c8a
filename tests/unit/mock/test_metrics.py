"""What the mock server says of itself: vLLM's metrics, and counts of its own."""

import re
from pathlib import Path

import aiohttp

from harness.mock.metrics import Metrics
from harness.mock.server import MockServer
from tests.support.mock_talks import events_of, outcome, request_body, with_server

METRIC = re.compile(r'(vllm:\w+)\{engine="0",model_name="mock"(?:,(\w+)="([^"]+)")?\} (\S+)')


def test_metrics_have_vllm_s_names() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        for _ in range(4):
            await outcome(client)
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
            await outcome(client)
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
        async with client.post("/v1/completions", json=request_body(3)) as answer:
            assert events_of(await answer.read())[0]["id"].startswith("cmpl-00000000-"), "numbers start anew"
        row = server.rows[0]
        assert server.due_ns(row)(2) - row.start_ns == 8_000_000
        for bad in ("ttft=x", "itl=-1", "jit=2", "ttft=nan", "itl=inf"):
            async with client.post(f"/__reset?{bad}") as answer:
                assert answer.status == 400
        assert len(server.rows) == 1

    with_server(talk)
