"""What our scheduler and its recorder cost: vLLM untouched and v1 through PolicyScheduler, two servers side by side.

They take turns: while one is driven the other idles. A pair is one turn each, the order alternating. Prints, asserts
nothing.

python tests/bench/overhead.py [PYTHON_WITH_VLLM] [PAIRS] [REQUESTS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.core.runspec import RunSpec
from harness.engines.serving.command import Plugin, command, environment
from harness.engines.serving.environments import examine
from harness.engines.serving.server import Server, free_port, plugin_path
from harness.engines.serving.tiny_model import FLAGS, make_tiny_model

LOAD = ("--workload", "synthetic:mu_l=100,mu_o=50", "--concurrency", "64", "--slots", "32", "--token-budget", "512")


def cpu_s(group: int) -> float:
    """CPU seconds so far of all processes of a group."""
    ticks = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                told = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(told[2]) == group:
                ticks += int(told[11]) + int(told[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def turn(server: Server, requests: int, seed: int, out: Path) -> tuple[float, float]:
    """Output tokens a second, and the server's CPU µs an output token, of one closed loop."""
    before = cpu_s(server.pid)
    words = [
        sys.executable,
        "-c",
        "from harness.cli.entry import main; main()",
        "run",
        "--url",
        server.endpoint.url,
        *LOAD,
        "--json",
    ]
    words += ["--requests", str(requests), "--seed", str(seed), "--out", str(out), "--vocabulary", "2000"]
    done = subprocess.run([*words, "--warmup", "0"], capture_output=True, text=True, check=True)
    (run,) = json.loads(done.stdout)["runs"]
    spent = cpu_s(server.pid) - before
    return run["metrics"]["output_throughput"]["value"], 1e6 * spent / run["counts"]["output_tokens"]


def main() -> None:
    python = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["BENCH_ENGINE_PYTHON"])
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    requests = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    flags = examine(python).flags
    spec = RunSpec(
        gpu="cpu", model="tiny", policy="v1", workload="", slots=32, token_budget=512, max_model_len=2048,
        block_size=32, engine="vllm", engine_args=FLAGS,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_tiny_model(place / "tiny")
        servers: dict[str, Server] = {}
        for name, plugin in (("stock", None), ("v1", Plugin("v1", None, place / "steps.log"))):
            port = free_port()
            words = command(spec, python, str(place / "tiny"), port, plugin, flags, cpu=True)
            servers[name] = Server(words, environment(plugin_path(), os.environ), place / f"{name}.log", port)
            assert servers[name].wait_until_ready(300, lambda: False, lambda _: None), servers[name].fault()
        try:
            for server in servers.values():
                turn(server, requests, 0, place / "runs")
            rates: dict[str, list[float]] = {name: [] for name in servers}
            costs: dict[str, list[float]] = {name: [] for name in servers}
            for pair in range(pairs):
                for name in list(servers) if pair % 2 else list(servers)[::-1]:
                    rate, cost = turn(servers[name], requests, pair + 1, place / "runs")
                    rates[name].append(rate)
                    costs[name].append(cost)
                    print(f"pair {pair}: {name:<6}{rate:>9,.0f} tok/s {cost:>8,.0f} CPU µs a token", flush=True)
        finally:
            for server in servers.values():
                server.stop()
    for label, found in (("tok/s", rates), ("CPU µs a token", costs)):
        ratios = [b / a for a, b in zip(found["stock"], found["v1"], strict=True)]
        print(
            f"{label}: v1 / stock, median of {pairs} pairs {statistics.median(ratios):.4f}, "
            f"mean {statistics.mean(ratios):.4f} ± {statistics.stdev(ratios) / pairs**0.5:.4f} (standard error)"
        )


if __name__ == "__main__":
    main()
