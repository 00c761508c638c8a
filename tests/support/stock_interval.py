"""vLLM's scheduler in virtual time with its own `prefill_schedule_interval`: a job's `interval`, beside v1."""

from __future__ import annotations

from typing import Any

from policies import vllm_emulated

_make = vllm_emulated.make_scheduler


def _with_interval(base: Any, job: dict[str, Any], cls: Any = None) -> Any:
    scheduler = _make(base, job, cls)
    # Our class refuses the setting at its start, since a policy may not want it: v1 leaves every step to vLLM.
    scheduler.local_prefill_interval = job["interval"]
    scheduler.last_prefill_step = -job["interval"]
    return scheduler


if __name__ == "__main__":
    vllm_emulated.make_scheduler = _with_interval
    vllm_emulated.main()
