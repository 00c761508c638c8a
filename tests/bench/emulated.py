"""Steps a second of `--engine emulated` with as many requests running all the time. Prints, asserts nothing.

python tests/bench/emulated.py [PYTHON_WITH_VLLM] [RUNNING] [REQUESTS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.engines.emulated import Emulated
from harness.engines.serving.environments import examine
from harness.engines.serving.scheduler_process import SchedulerProcess
from harness.session.one_run import prepare, run
from workloads.core.stream import Stream


def cpu_s(process: SchedulerProcess) -> float:
    """CPU seconds of this process and of the scheduler's so far: what a busy machine does not change."""
    assert process._process is not None
    fields = Path(f"/proc/{process._process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    python = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["BENCH_ENGINE_PYTHON"])
    running = int(sys.argv[2]) if len(sys.argv) > 2 else 245
    requests = int(sys.argv[3]) if len(sys.argv) > 3 else 1500
    process, environment = SchedulerProcess(python), examine(python)
    start = time.perf_counter()
    process.ready(lambda: False, lambda _: None)
    print(f"vLLM {process.version} imported in {time.perf_counter() - start:.1f} s")

    def make(spec: RunSpec, stream: Stream) -> Emulated:
        return Emulated(spec, stream, environment, process)

    for policy in ("v1", "eb:k=32", "ebplus"):
        spec = RunSpec(
            gpu="h200",
            model="Qwen/Qwen3-8B",
            policy=policy,
            workload="sharegpt",
            engine="emulated",
            arrival=f"closed:concurrency={2 * running}",
            requests=requests,
            slots=running,
        )
        with tempfile.TemporaryDirectory() as folder:
            prepared = prepare(spec, make)
            begun, cpu = time.perf_counter(), cpu_s(process)

            def ignore(_: Status) -> None:
                pass

            one = run(prepared, Path(folder), ["bench"], ignore, lambda: False)
            seconds, cpu = time.perf_counter() - begun, cpu_s(process) - cpu
            table = one.steps()
            assert table is not None
            held = table["running"].to_numpy()
            print(
                f"{policy}: {len(table):,} steps in {seconds:.1f} s: {len(table) / seconds:.0f} steps/s; of CPU time, "
                f"both processes, {len(table) / cpu:.0f} steps/s; {held.mean():.0f} run on average, {running} in "
                f"{100 * (held == running).mean():.0f} % of the steps"
            )
    process.close()


if __name__ == "__main__":
    main()
