"""What the plugin and the recorder cost a step, on vLLM's own scheduler without a model.

    PYTHONPATH=. ENGINE_PYTHON tests/bench/plugin.py [running requests [policies, such as v1,adaptive]]

The cost is the time inside our methods less that inside vLLM's methods that they call, so the scheduler's own
milliseconds do not hide it. A scheduler that only passes these calls on is measured beside ours in the same way:
that is what the measuring costs, and no part of ours. On a busy machine look at the medians. Also printed: the CPU
that the step log's thread takes a step, and the steps that the emulated engine makes in a second of a core at 245
running.
"""

from __future__ import annotations

import functools
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from policies.plugin.step_log import StepLog
from policies.vllm_emulated import Replay, engine_config, make_scheduler

METHODS = ("schedule", "update_from_output", "add_request", "_free_request", "_preempt_request")
POLICIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("v1", {}),
    ("v0", {}),
    ("eb", {"k": "64"}),
    ("eb", {}),
    ("ebplus", {}),
    ("adaptive", {}),
)
COSTS = {
    "alpha_p_s": 0.02,
    "beta_p_s": 1e-4,
    "alpha_d_s": 0.02,
    "beta_d_s": 1e-5,
    "alpha_mb_s": 0.02,
    "mixed_a_s": 1e-4,
    "mixed_b_s": 0.0,
    "mixed_c_s": 0.0,
}


def timed(cls: Any, name: str, spent: dict[str, int], sign: int) -> None:
    """Counts the time inside a method of a class, for it (1) or against it (-1), ns."""
    stock = getattr(cls, name)

    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter_ns()
        try:
            return stock(self, *args, **kwargs)
        finally:
            spent["ours"] += sign * (time.perf_counter_ns() - begun)

    setattr(cls, name, method)


def time_the_log(spent: dict[str, int]) -> None:
    """Counts the CPU time of the thread that writes the step log, ns."""
    flush = StepLog._flush

    def method(self: StepLog) -> None:
        begun = time.thread_time_ns()
        flush(self)
        spent["log"] += time.thread_time_ns() - begun

    StepLog._flush = method  # type: ignore[method-assign] # to be timed


def job(
    running: int, policy: str, options: dict[str, str], late: bool, step_log: Path, requests: int
) -> dict[str, Any]:
    """A closed loop that keeps the slots full: prompts of 1 to 200 tokens, outputs of 100 to 400."""
    rng = random.Random(1)
    return {
        "prompt": [rng.randint(1, 200) for _ in range(requests)],
        "output": [rng.randint(100, 400) for _ in range(requests)],
        "concurrency": running + running // 4,
        "limits": {
            "slots": running,
            "token_budget": 8192,
            "kv_blocks": running * 40,
            "block_size": 16,
            "max_model_len": 4096,
        },
        "policy": {"name": policy, "options": options, "costs": COSTS},
        "async": late,
        "cost": 1,
        "step_log": str(step_log),
    }


def passing(stock: Any) -> Any:
    """vLLM's scheduler in the place of ours: it passes on each call that ours takes."""

    def through(name: str) -> Any:
        method = getattr(stock, name)

        def passed_on(self: Any, *args: Any, **kwargs: Any) -> Any:
            return method(self, *args, **kwargs)

        return passed_on

    def view(self: Any) -> Any:
        return SimpleNamespace(partly_prefilled={one.request_id: one for one in self.running if one.is_prefill_chunk})

    # `Replay` looks at these two of ours.
    others = {"view": property(view), "book": SimpleNamespace()}
    return type("Passing", (stock,), {**others, **{name: through(name) for name in METHODS}})


def measure(base: Any, cls: Any, work: dict[str, Any], spent: dict[str, int], steps: int) -> tuple[list[int], float]:
    """Nanoseconds that are ours in each of some steps, once all slots are taken, and all seconds a step."""
    scheduler = make_scheduler(base, work, cls)
    ours: list[int] = []
    began = 0.0
    before = 100

    def cost() -> int:
        nonlocal began, before
        if before > 0:
            before -= 1
            began = time.thread_time()
            spent["log"] = 0
        else:
            ours.append(spent["ours"])
        spent["ours"] = 0
        if len(ours) == steps:
            raise StopIteration
        return 1

    try:
        Replay(work, scheduler, lambda _: None, cost).run()
    except StopIteration:
        return ours, (time.thread_time() - began) / steps
    finally:
        scheduler.shutdown()
    raise AssertionError("the stream ended before the measurement")


def main() -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from policies.vllm_plugin import PolicyScheduler

    running = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    named = sys.argv[2].split(",") if len(sys.argv) > 2 else [policy for policy, _ in POLICIES]
    base = engine_config()
    gc.collect()
    gc.freeze()
    clock: Callable[[], float] = time.thread_time
    with tempfile.TemporaryDirectory() as folder:
        for late in (False, True):
            work = job(245, "v1", {}, late, Path(folder) / f"speed-{late}.bin", 3000)
            begun = clock()
            scheduler = make_scheduler(base, work)
            Replay(work, scheduler, lambda _: None, lambda: 1).run()
            form = "asynchronous" if late else "synchronous"
            print(f"emulated, 245 running, {form}: {scheduler.steps / (clock() - begun):.0f} steps/s")
            scheduler.shutdown()
        spent = {"ours": 0, "log": 0}
        for name in METHODS:
            timed(AsyncScheduler, name, spent, -1)
        passes = passing(AsyncScheduler)
        for name in METHODS:
            timed(PolicyScheduler, name, spent, 1)
            timed(passes, name, spent, 1)
        time_the_log(spent)
        for late in (False, True):
            for i, (policy, options) in enumerate(POLICIES):
                if policy not in named:
                    continue
                work = job(running, policy, options, late, Path(folder) / f"steps-{late}-{i}.bin", 6 * running)
                measuring = statistics.median(measure(base, passes, work, spent, 200)[0]) / 1e3
                ours, whole = measure(base, PolicyScheduler, work, spent, 200)
                mean, median = statistics.mean(ours) / 1e3 - measuring, statistics.median(ours) / 1e3 - measuring
                print(
                    f"{running} running, {'asynchronous' if late else 'synchronous':12} {policy:6} {options!s:12} "
                    f"ours {mean:5.1f} µs a step (median {median:5.1f}, besides {measuring:.1f} of measuring), "
                    f"the log's thread {spent['log'] / 200 / 1e3:.0f} µs, the whole step {whole * 1e3:.1f} ms"
                )


if __name__ == "__main__":
    main()
