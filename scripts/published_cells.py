"""The published cells of arXiv 2606.00516 whose protocol is known, and what a cost model gives for each.

Used by fidelity.py. What is assumed of each experiment stands here, in PROTOCOLS, and was written down before anything
was scored; host constants of the authors' two machines were fitted to v1 in Table 4, which is left out of the scores.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import published_lengths

from harness.core.host import Host
from harness.engines.simulated import V0_HOST, replay
from harness.profiles.pair import Pair, load_pair
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows
from policies.batching import V0_ENGINE
from policies.catalog import make_policy, read_policy
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.arrivals import Closed
from workloads.core.stream import Stream
from workloads.core.trace import Trace

MODEL = "Qwen/Qwen3-8B"
MIXTURE = "Qwen/Qwen3-30B-A3B"
GPUS = {"H200": "h200", "RTX PRO 6000": "rtxpro6000", "B300": "b300", "L40S": "l40s"}
# As the paper's measured policies behave (docs/policies.md): θ held at 0.7 or above, and the authors' own δ.
# The paper's v0 is vLLM's first engine, bound by its host, where it was measured end to end (Table 3).
POLICIES = {"v1": "v1", "eb": "eb:theta_min=0.7", "eb+": "ebplus:delta=1e-5,theta_min=0.7"}
THROUGHPUT = {"total_token_throughput": "total", "output_token_throughput": "output", "request_throughput": "requests"}
METRICS = {**THROUGHPUT, "mean_ttft": "ttft", "mean_tpot": "tpot"}
UNITS = {"total": 1.0, "output": 1.0, "requests": 1.0, "ttft": 1.0, "tpot": 1e3}  # TPOT was published in ms
MAX_MODEL_LEN = 16384
MODELS = ("linear", "roofline", "kernels")
GRID = (256, 512, 1024, 1536, 2048)  # the paper's N; of its six B only the scripts' own are tried
# The authors' two machines: throughput and TPOT of v1 in Table 4 (12 records) chose these of t0 = 0.5, 1 … 3 ms and
# h = 0, 5 … 20 µs, the range in which hosts were found. No v1 record of Table 4 is scored. Kernels alone take them.
HOSTS = {"h200": Host(0.5e-3, 20e-6), "rtxpro6000": Host(3e-3, 20e-6)}


@dataclass(frozen=True, slots=True)
class Setup:
    """One simulated run: what of, on what, under which limits; `load` requests in flight.

    Slots of 0: the best of GRID by throughput, as each policy was published where the paper searched a grid.
    """

    gpu: str
    policy: str
    workload: str
    requests: int
    load: int
    slots: int
    budget: int
    model: str = MODEL


@dataclass(frozen=True, slots=True)
class Cell:
    """One published figure and the run that should give it; `group` is the experiment that it is scored with."""

    group: str
    setup: Setup
    metric: str
    value: float

    @property
    def chose_hosts(self) -> bool:
        """Whether the figure stands among those that the host constants were fitted to."""
        return self.group == "Table 4" and self.setup.policy == "v1"

    @property
    def place(self) -> str:
        """Where the figure stands, for a table."""
        one = self.setup
        size = "30B " if one.model == MIXTURE else ""
        return f"{one.gpu} {size}{one.workload}, c={one.load} N={one.slots or 'best'} B={one.budget}"


# Slots and budget where the paper tells none: its scripts' own defaults for each mix (of validation and selector).
SCRIPTS = {"decode_heavy": (2048, 16384), "balanced": (1024, 14336), "prefill_heavy": (512, 18432)}
REAL = {
    "sharegpt": "sharegpt:natural=360",  # stopped by the model under a cap of 500: 360 tokens in the mean
    "longbench": "longbench",
    "numina_math": "numinamath:forced=4000",
}
TABLE4_REQUESTS = {32: 1000, 512: 3000, 2048: 4000}


def table4(row: dict[str, Any]) -> Setup | None:
    """520 tokens in (the chat template's 8 with them), 192 to 320 out; N and B as in the authors' logs."""
    load = row["concurrency"]
    return _setup(row, "table4", TABLE4_REQUESTS[load], load, 2048, 18432)


def figure3(row: dict[str, Any]) -> Setup | None:
    """Fixed thresholds and v1 at N = 1,024; EB(k*) found its N below the scripts' own; geometric outputs."""
    name = row["policy"]
    slots, budget = SCRIPTS[row["workload"]]
    policy = f"eb:k={name.rpartition('_')[2]}" if name.startswith("eb_fixed_k_") else None
    workload = f"client:geometric,{row['mu_L']},{row['mu_O']}"
    return _setup(row, workload, 4000, 2048, slots if name == "eb" else row["N"], budget, policy)


def figure4(row: dict[str, Any]) -> Setup | None:
    """Lengths uniform ±50 %; each policy at the best N of the grid, as in the paper.

    v0 as the rule in the new engine: it was published at 16,000 output tok/s, and the old one's host cannot do that.
    """
    workload = f"client:uniform,{row['mu_L']},{row['mu_O']}"
    policy = "v0" if row["policy"] == "v0" else None
    return _setup(row, workload, 4000, 2048, 0, SCRIPTS[row["workload"]][1], policy)


def real(row: dict[str, Any]) -> Setup | None:
    """Real workloads, 2,048 in flight, each policy at its own N and B; WildChat's contexts are told nowhere."""
    workload = REAL.get(row["workload"])
    if workload is None or row["N"] is None:
        return None
    return _setup(row, workload, 4000, 2048, row["N"], row["B"])


def mixture(row: dict[str, Any]) -> Setup | None:
    """The same of the mixture of experts."""
    setup = real(row)
    return setup and replace(setup, model=MIXTURE)


def first_engine(row: dict[str, Any]) -> Setup | None:
    """v1 and vLLM's first engine on the H200: each at its own N and B; WildChat's contexts are ours."""
    if row["policy"] not in ("v0", "v1") or row["N"] is None:
        return None
    workload = (REAL | {"wildchat": "wildchat"}).get(row["workload"])
    model = MODELS_OF.get(row["model"])
    if workload is None or model is None:
        return None
    policy = "v0-engine" if row["policy"] == "v0" else "v1"
    setup = _setup(row, workload, 4000, 2048, row["N"], row["B"], policy)
    return setup and replace(setup, model=model)


def shift(row: dict[str, Any]) -> Setup | None:
    """The distribution shift, shuffled as the published client does it; how the other one was averaged is not told."""
    if row["workload"] != "distribution_shift":
        return None
    return _setup(row, "drift:distribution,order=paper", 6000, 2048, 2048, 18432)


MODELS_OF = {"Qwen3-8B": MODEL, "Qwen3-30B-A3B": MIXTURE}
Protocol = Callable[[dict[str, Any]], Setup | None]
MIXED = "real workloads, 30B-A3B"
# By table: experiment, published model, and what was run.
PROTOCOLS: dict[str, tuple[tuple[str, str, Protocol], ...]] = {
    "Table 4": (("Table 4", "Qwen3-8B", table4),),
    "Fig 3": (("Figure 3", "Qwen3-8B", figure3),),
    "Fig 4": (("Figure 4", "Qwen3-8B", figure4),),
    "Table 2": (("real workloads", "Qwen3-8B", real), (MIXED, "Qwen3-30B-A3B", mixture)),
    "Table 3": (
        ("real workloads", "Qwen3-8B", real),
        (MIXED, "Qwen3-30B-A3B", mixture),
        ("v0 of Table 3", "Qwen3-8B", first_engine),
        ("v0 of Table 3", "Qwen3-30B-A3B", first_engine),
    ),
    "Fig 5 (TTFT)": (("real workloads", "Qwen3-8B", real), (MIXED, "Qwen3-30B-A3B", mixture)),
    "Fig 6 (TPOT)": (("real workloads", "Qwen3-8B", real), (MIXED, "Qwen3-30B-A3B", mixture)),
    "Table 5": (("Table 5", "Qwen3-8B", shift),),
}


def _setup(
    row: dict[str, Any], workload: str, requests: int, load: int, slots: int, budget: int, policy: str | None = None
) -> Setup | None:
    policy = policy or POLICIES.get(row["policy"])
    return Setup(GPUS[row["gpu"]], policy, workload, requests, load, slots, budget) if policy else None


def cells(reference: Path) -> list[Cell]:
    """Every published figure with a known protocol, once an experiment.

    Left out are bars read by eye where the plot's own script has them, and totals that contradict the authors' log.
    """
    found: dict[tuple[str, Setup, str], Cell] = {}
    for row in json.loads(reference.read_text(encoding="utf-8")):
        by_eye = row["provenance"] == "figure_digitised" and row["table"] != "Fig 3"
        if row["metric"] not in METRICS or by_eye or "CONTRADICTS the authors' log" in (row["note"] or ""):
            continue
        for group, model, protocol in PROTOCOLS.get(row["table"], ()):
            setup = protocol(row) if row["model"] == model else None
            if setup is not None:
                metric = METRICS[row["metric"]]
                found.setdefault((group, setup, metric), Cell(group, setup, metric, row["value"] / UNITS[metric]))
    return list(found.values())


@functools.lru_cache(maxsize=8)
def trace_of(workload: str, requests: int) -> Trace:
    """The rows of a workload; Table 4's, and Figures 3's and 4's, are those of the published generators."""
    if workload == "table4":
        return Trace("table4", *published_lengths.table4(requests))
    if workload.startswith("client:"):
        law, prompt, output = workload.removeprefix("client:").split(",")
        return Trace(workload, *published_lengths.client(law, int(prompt), int(output), requests))
    name, given = options.split(workload)
    return load_workload(name, given, requests=requests, seed=0, model=MODEL)


@functools.lru_cache(maxsize=8)
def pair_of(gpu: str, model: str) -> Pair:
    """A model on a GPU."""
    return load_pair(gpu, model)


def run(setup: Setup, model: str) -> dict[str, float] | None:
    """The metrics of a closed loop: requests/s, total and output tok/s, mean TTFT and TPOT (s).

    Policies are told the authors' own calibration, as theirs were, whatever the model that steps cost by. None where
    the model does not price the run.
    """
    if not setup.slots:
        tried = [run(replace(setup, slots=slots), model) for slots in GRID]
        return max((one for one in tried if one), key=lambda one: one["requests"], default=None)
    trace, pair = trace_of(setup.workload, setup.requests), pair_of(setup.gpu, setup.model)
    first_engine = setup.policy == V0_ENGINE
    if pair.refusal(model) or (first_engine and model == "linear"):
        return None
    host = HOSTS.get(setup.gpu, Host()) if model == "kernels" else Host()
    means = (float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean()))
    costs = pair.policy_constants(*means, setup.budget, "linear")
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    replay(
        Stream(trace, Closed(setup.load), None),
        make_policy(*read_policy(setup.policy), setup.slots, costs),
        pair.cost(model, V0_HOST if first_engine else host),
        EngineLimits(setup.slots, setup.budget, pair.kv_tokens // 16, max_model_len=MAX_MODEL_LEN),
        sink,
    )
    rows = np.concatenate([chunk.requests for chunk in chunks])
    sent, first, last, tokens = rows[:, 2] / 1e9, rows[:, 3] / 1e9, rows[:, 4] / 1e9, rows[:, 6]
    several = tokens > 1
    end = float(last.max())
    return {
        "requests": len(rows) / end,
        "total": float(trace.prompt_tokens.sum() + tokens.sum()) / end,
        "output": float(tokens.sum()) / end,
        "ttft": float((first - sent).mean()),
        "tpot": float(((last - first)[several] / (tokens[several] - 1)).mean()),
    }


def setups(found: Iterable[Cell]) -> list[Setup]:
    """The runs that some cells need, each once."""
    return list(dict.fromkeys(cell.setup for cell in found))
