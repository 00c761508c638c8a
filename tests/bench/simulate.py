"""How fast the virtual-time engine is: requests and steps a CPU second, and the peak memory.

Run by hand: python tests/bench/simulate.py [--requests 1000000] [--gpu h200,l40s] [--policy v1,ebplus]
Each case runs in a process of its own, so that its memory is its own; times are CPU time of one core.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import subprocess
import sys
import time
from typing import Any


def measure(gpu: str, policy: str, requests: int, lengths: str, caching: bool) -> None:
    """Replays the embedded ShareGPT lengths, closed loop 2,048, N = 1024, B = 14,336, and prints a line.

    With a prefix cache it is WildChat's twin instead, 256 conversations at a time.
    """
    from harness.core.runspec import RunSpec
    from harness.engines.simulated import Simulated, replay
    from harness.session.one_run import stream_of
    from harness.simulate.prefix_cache import PrefixCache
    from harness.simulate.rows import Rows

    spec = RunSpec(gpu=gpu, model="Qwen/Qwen3-8B", policy=policy, workload="sharegpt", requests=requests)
    spec = dataclasses.replace(spec, lengths=lengths)
    if caching:
        talks: dict[str, Any] = {"workload": "wildchat:history=true", "arrival": "closed:concurrency=256"}
        spec = dataclasses.replace(spec, **talks, sessions=True, prefix_caching=0.0)
    engine = Simulated(spec, stream_of(spec))
    cache = None if engine.content is None else PrefixCache(engine.content, engine.limits.kv_blocks - 1, 16)
    rows = 0

    def sink(chunk: Rows) -> bool:
        nonlocal rows
        rows += len(chunk.requests)
        return True

    before = time.process_time()
    loop = replay(engine.stream, engine.policy, engine.cost, engine.limits, sink, hints=engine.hints, cache=cache)
    seconds = time.process_time() - before
    assert rows == requests
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{gpu:<11} {policy:<8} {requests:>9,} requests {seconds:7.2f} s  {requests / seconds:>9,.0f} requests/s  "
        f"{loop.step_count / seconds:>8,.0f} steps/s  {1e6 * seconds / loop.step_count:6.1f} µs/step  "
        f"{loop.preemptions:>7,} preemptions  {memory:5.0f} MB peak"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--gpu", default="h200,l40s")
    parser.add_argument("--policy", default="v1,ebplus,adaptive")
    parser.add_argument("--lengths", default="none", help="what an ordered policy knows, such as oracle")
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measure(given.gpu, given.policy, given.requests, given.lengths, given.prefix_caching)
        return
    for gpu in given.gpu.split(","):
        for policy in given.policy.split(","):
            command = [sys.executable, __file__, "--one", "--gpu", gpu, "--policy", policy]
            command += ["--requests", str(given.requests), "--lengths", given.lengths]
            command += ["--prefix-caching"] if given.prefix_caching else []
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
