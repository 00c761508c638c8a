"""One server with our scheduler in it, shared by what does not end it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.core.runspec import RunSpec
from harness.engines.serving.command import Plugin, command, environment
from harness.engines.serving.environments import examine
from harness.engines.serving.read_back import other_than_asked, read_back, server_settings
from harness.engines.serving.server import Server, free_port, plugin_path
from harness.engines.serving.tiny_model import FLAGS
from harness.runs.step_log import StepLog, read_step_log
from tests.support.commands import Bench
from tests.support.real_vllm import engines, wait_for

SPEC = RunSpec(
    gpu="cpu",
    model="tiny",
    policy="eb:k=2",
    workload="",
    engine="vllm",
    slots=8,
    token_budget=256,
    block_size=32,
    kv_tokens=4096,
    max_model_len=2048,
    watermark=0.05,
    prefix_caching=0.0,
    engine_args=FLAGS,
)


@dataclass(frozen=True, slots=True)
class Running:
    server: Server
    log: Path

    def steps(self) -> StepLog:
        return read_step_log(self.log, 0)


@pytest.fixture(scope="module")
def running(place: Path, engine_python: str) -> Iterator[Running]:
    port, log = free_port(), place / "steps.log"
    flags = examine(Path(engine_python)).flags
    plugin = Plugin(SPEC.policy, None, log)
    words = command(SPEC, Path(engine_python), str(place / "tiny"), port, plugin, flags, cpu=True)
    env = environment(plugin_path(), os.environ | {"HF_HUB_OFFLINE": "1"})
    with Server(words, env, place / "engine.log", port) as server:
        assert server.wait_until_ready(600, lambda: False, lambda _: None), server.fault()
        yield Running(server, log)
    assert not engines(place)


def test_the_server_says_what_was_asked_for(running: Running) -> None:
    said = server_settings(running.server.endpoint, running.log)
    assert other_than_asked(said, SPEC, said["version"], own_scheduler=True) is None
    for spec, version, name in (
        (replace(SPEC, policy="eb:k=3"), said["version"], "policy"),
        (replace(SPEC, slots=9), said["version"], "max_num_seqs"),
        (SPEC, "0.1.0", "version"),
    ):
        assert name in str(other_than_asked(said, spec, version, own_scheduler=True))
    told = read_back(said)
    settings = told["engine_settings"]
    assert (settings["max_num_seqs"], settings["max_num_batched_tokens"]) == (8, 256)
    assert (settings["num_gpu_blocks"], settings["block_size"]) == (128, 32)
    assert settings["watermark"] == 0.05
    assert settings["enable_prefix_caching"] is True
    assert settings["scheduler_cls"] == "policies.vllm_plugin.PolicyScheduler"
    header = running.steps().header
    assert (header["policy"], header["slots"], header["async"]) == ("eb:k=2", 8, False)
    assert told["async_scheduling"] is False


def test_the_same_server_from_outside_has_no_step_log(running: Running, bench: Bench, place: Path) -> None:
    result = bench(
        "run", "--url", running.server.endpoint.url, "--workload", "synthetic:mu_l=50,mu_o=8", "--requests", "60",
        "--concurrency", "12", "--tokenizer", str(place / "tiny"), "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["engine"] == "endpoint"
    assert run["counts"]["completed"] == 60
    assert run["counts"]["steps"] in (0, None)
    assert not {"gap_mean", "externality"} & {name for name, value in run["metrics"].items() if value}
    rows = pq.read_table(place / run["dir"] / "requests.parquet").to_pylist()
    assert {row["preemptions"] for row in rows} == {None}
    wait_for(lambda: sum(row["event"] == "finish" for row in running.steps().events.to_pylist()) >= 64, 30)


def test_a_prompt_too_long_is_refused_and_no_other(running: Running, bench: Bench, place: Path) -> None:
    (place / "long.jsonl").write_text(
        "".join(json.dumps({"prompt_tokens": length, "output_tokens": 4}) + "\n" for length in (40, 3000, 50))
    )
    result = bench(
        "run", "--url", running.server.endpoint.url, "--workload", "file:long.jsonl", "--concurrency", "3",
        "--tokenizer", str(place / "tiny"), "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert (run["counts"]["completed"], run["counts"]["failed"]) == (2, 1)
    assert any("http_400" in note for note in run["notes"])


def test_a_client_that_goes_is_an_abort(running: Running) -> None:
    # Now and then the web server does not notice that a client has gone, and the answer is generated to its end: that
    # is not ours to mend. What it does notice has to be an abort in the log.
    assert any(_goes(running, f"gone{i}") == "abort" for i in range(4))
    assert not running.server.broken


def _goes(running: Running, name: str) -> str:
    """How a request ended whose client left after the first token: abort or finish."""
    endpoint = running.server.endpoint
    body = {"model": "tiny", "prompt": [400] * 20, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    text = json.dumps(body)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {endpoint.host}\r\nX-Request-Id: {name}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection((endpoint.host, endpoint.port), 60) as connection:
        connection.sendall((head + text).encode())
        answer = b""
        while b"data:" not in answer:
            more = connection.recv(65536)
            assert more, answer
            answer += more

    def ended() -> str | None:
        events = [event["event"] for event in running.steps().events.to_pylist() if event["request"] == name]
        return next((one for one in events if one in ("abort", "finish")), None)

    return str(wait_for(ended, 120))
