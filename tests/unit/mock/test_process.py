"""The mock server as a process: addresses, options, signals, and its pacer."""

import asyncio
import math
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.errors import UserError
from harness.mock.options import MockOptions
from harness.mock.pacer import Pacer
from harness.mock.serve import serve
from harness.mock.server import MockServer
from tests.support.mock_talks import log_of, outcome, request_body, with_server
from tests.support.places import ROOT


def test_ipv6() -> None:
    async def talk(server: MockServer, client: aiohttp.ClientSession) -> None:
        assert server.url.startswith("http://[::1]:")
        assert await outcome(client) == "ok"

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
        "import sys\nfrom pathlib import Path\nfrom harness.mock.options import MockOptions\n"
        "from harness.mock.serve import serve\n"
        "serve(MockOptions(port=0, ttft_ms=0, itl_ms=3_600_000, log=Path(sys.argv[1])))\n"
    )
    command = [sys.executable, "-c", script, str(log)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    async def cut_off(url: str, process: subprocess.Popen[str]) -> None:
        async with (
            aiohttp.ClientSession(base_url=url) as client,
            client.post("/v1/completions", json=request_body(9)) as answer,
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
        monkeypatch.setattr("sys.platform", "other")

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
