"""What goes wrong with a real engine: each says what it is and what to do, and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from harness.engines.serving.server import Server, plugin_path
from harness.engines.serving.tiny_model import FLAGS
from tests.support.commands import BENCH, Bench
from tests.support.real_vllm import RUN, engines, wait_for, with_options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine-python", "/nowhere/python"), "engine install"),
        (("--engine-python", "bench's own"), "there is no vLLM in it"),
        (("--model", "./nowhere"), "no such directory"),
        (("--model", "."), "config.json"),
        (("--gpu", "cpu", "--policy", "ebplus"), "bench calibrate"),
        (("--gpu", "no such gpu"), "--gpu cpu"),
        (("--policy", "v1-interval:n=2"), "prefill_schedule_interval"),
        (("--engine-args", "--max-num-seqs 3"), "--slots"),
    ],
)
def test_what_can_be_known_is_said_before_anything_starts(
    options: tuple[str, ...], said: str, bench: Bench, place: Path, engine_python: str
) -> None:
    options = tuple(BENCH.replace("bin/bench", "bin/python") if one == "bench's own" else one for one in options)
    base = {"--policy": "v1", "--requests": "10", "--engine-python": engine_python}
    given = base | dict(zip(options[::2], options[1::2], strict=True))
    result = bench(*with_options(*itertools.chain(*given.items())))
    assert result.code == 2, result.err
    assert said in result.err
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "nobody/no-such-model"), "correct --model"),
        (("--engine-args", f"{FLAGS} --no-such-flag"), "--engine-args"),
        (("--engine-args", f"{FLAGS} --scheduling-policy priority"), "the policy was refused"),
        (("--engine-args", f"{FLAGS} --kv-cache-memory-bytes 99999999999999"), "out of memory"),
    ],
)
def test_an_engine_that_does_not_start_says_why(
    options: tuple[str, ...], said: str, bench: Bench, place: Path, engine_python: str
) -> None:
    base = {"--policy": "v1", "--requests": "10", "--engine-python": engine_python}
    given = base | dict(zip(options[::2], options[1::2], strict=True))
    result = bench(*with_options(*itertools.chain(*given.items())))
    assert result.code == 2, result.err
    (line,) = (line for line in result.err.splitlines() if line.startswith("bench:"))
    assert "did not start" in line
    assert said in line
    assert not engines(place)


def test_ctrl_c_while_the_engine_starts(place: Path, engine_python: str) -> None:
    command = [BENCH, *RUN, "--policy", "v1", "--requests", "10", "--engine-python", engine_python, "--out", "stopped"]
    own = {"BENCH_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, cwd=place, env=os.environ | own, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: engines(place))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    (manifest,) = place.glob("stopped/**/run.json")
    assert '"interrupted"' in manifest.read_text()
    assert not engines(place)


def test_a_port_that_is_taken(place: Path, engine_python: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = [engine_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(place / "tiny")]
        words += ["--host", "127.0.0.1", "--port", str(port)]
        env = os.environ | {"PYTHONPATH": str(plugin_path()), "HF_HUB_OFFLINE": "1"}
        with Server(words, env, place / "taken.log", port) as server:
            wait_for(lambda: server.broken)
            fault = server.fault()
    assert fault is not None
    assert "port was taken" in fault.line
