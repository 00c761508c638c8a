"""A policy of your own in one file, against v1 on the same requests."""

from pathlib import Path

import schedbench as sb

path = Path("mine.py")
path.write_text(
    """
from policies.own import MIXED, OwnPolicy, Phase, StepPlan


class Mine(OwnPolicy):
    k: int = 8

    def plan(self, view):
        if view.waiting < self.k and view.decoding:
            return StepPlan(Phase.DECODE, 0)  # nobody enters until k wait
        return MIXED
"""
)
runs = sb.run(
    gpu="l40s", policy=f"v1,./{path}:Mine,k=16", workload="sharegpt", requests=1500, concurrency=256, slots=128
)
print(runs.summary[["policy", "output_throughput_tok_per_s", "ttft_p99_s", "verdict"]])
print(sb.compare(runs))
