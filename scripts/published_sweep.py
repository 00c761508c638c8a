"""The authors' sweep of k in January 2026: their result files, whose lengths and limits are known. Used by fidelity.py.

published_sweep.csv holds its figures: Qwen3-8B on an H200, from rucnyz/vllm at 885c0cc6 (Apache-2.0), the folder
pd_exp/outputs/kstar_bs1024_c2048_n4000_v4. All 27 runs of v1 and of fixed k; other folders there hold the same again.
"""

from __future__ import annotations

import csv
from pathlib import Path

from published_cells import Cell, Setup

GROUP = "sweep of k"
TABLE = Path(__file__).with_name("published_sweep.csv")
SLOTS = 1024
# vLLM's own of that month for a server on this GPU, and what its script gave to EB.
V1_BUDGET, EB_BUDGET = 8192, 16384


def cells() -> list[Cell]:
    """Throughput, TTFT and TPOT of each run."""
    found = []
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            policy = row["policy"]
            workload = f"client:uniform,{row['mu_l']},{row['mu_o']}"
            budget = V1_BUDGET if policy == "v1" else EB_BUDGET
            setup = Setup("h200", policy, workload, 4000, 2048, SLOTS, budget)
            found += [
                Cell(GROUP, setup, "total", float(row["total_tok_s"])),
                Cell(GROUP, setup, "ttft", float(row["ttft_s"])),
                Cell(GROUP, setup, "tpot", float(row["tpot_ms"]) / 1e3),
            ]
    return found
