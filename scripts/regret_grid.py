"""Writes the grid that `adaptive` was built on as a file for `bench regret`: 456 cells, a sample of them, or others.

    python scripts/regret_grid.py grid.toml [--sample 40] [--requests 1500] [--held-out]
    bench regret grid.toml --out runs-regret --across token_budget --hindsight v1,v0,eb:theta=0.03,…

{H200, L40S, RTX PRO 6000, A100} x eight workloads x {closed 128, 512, 2,048; Poisson at 70 and 95 % of what v1 gives in
a closed loop of 2,048 (six of them)} + two drifts, each under three cost models. `--held-out` has another GPU, seed,
lengths, N and B. Linear costs are there for measured GPUs alone: of 456 cells 380 can be had, and the rest are named.
"""

from __future__ import annotations

import argparse
import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.engines.simulated import Simulated
from harness.profiles.pair import load_pair
from harness.session.one_run import stream_of

MODEL = "Qwen/Qwen3-8B"
GPUS = ("h200", "l40s", "rtxpro6000", "a100")
STEADY = ("sharegpt", "longbench", "wildchat", "numinamath", "lmsys", "synthetic:mu_l=128,mu_o=64")
HEAVY = ("numinamath:forced=4000", "synthetic:mu_l=2048,mu_o=512")
DRIFTS = ("drift:distribution", "drift:concurrency-paper")
COSTS = ("linear", "roofline", "kernels")
LOADS = (0.7, 0.95)
HINDSIGHT = ("v1", "v0", "eb:theta=0.03", "eb:theta=0.1", "eb:theta=0.3", "eb", "ebplus")
HELD_OUT = ("synthetic:mu_l=700,mu_o=90", "synthetic:mu_l=60,mu_o=350", "sharegpt:output_cap=300", "wildchat")


@dataclass(frozen=True)
class Place:
    """A cell without its policies; `load` is a concurrency, a share of capacity below 1, or 0 where the drift has its
    own.
    """

    gpu: str
    workload: str
    load: float
    cost: str
    slots: int = 1024
    budget: int = 14336
    seed: int = 0


def places(held_out: bool) -> list[Place]:
    """The cells in a fixed order."""
    if held_out:
        limits = ((256, 8192), (512, 4096))
        axes = itertools.product(("h100",), HELD_OUT, (96, 384, 1536, 0.8), COSTS, limits)
        return [Place(gpu, workload, load, cost, *limit, seed=17) for gpu, workload, load, cost, limit in axes]
    closed = itertools.product(GPUS, STEADY + HEAVY, (128, 512, 2048), COSTS)
    poisson = itertools.product(GPUS, STEADY, LOADS, COSTS)
    drifts = itertools.product(GPUS, DRIFTS, (0,), COSTS)
    return [Place(*axes) for axes in (*closed, *poisson, *drifts)]


class Ends:
    """Takes a run's rows and keeps when the last token came."""

    last_s = 0.0

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Rows of requests."""
        self.last_s = max(self.last_s, *(end for end in batch["last_token_s"].to_pylist() if end is not None))

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Not looked at."""


def capacity(place: Place, requests: int) -> float:
    """Requests a second of v1 in a closed loop of 2,048; UserError where this GPU has no such costs."""
    spec = RunSpec(
        place.gpu, MODEL, "v1", place.workload, requests=requests, slots=place.slots, token_budget=place.budget,
        cost_model=place.cost, seed=place.seed,
    )  # fmt: skip
    ends = Ends()
    Simulated(spec, stream_of(spec)).replay(ends, lambda _: None, lambda: False)
    return requests / ends.last_s


def table(place: Place, requests: int, policies: tuple[str, ...], budgets: tuple[int, ...]) -> str:
    """A [[grid]] of the place."""
    lines = [f'gpu = "{place.gpu}"', f'workload = "{place.workload}"', f'cost_model = "{place.cost}"']
    lines += [f"slots = {place.slots}", f"token_budget = {list(budgets)}", f"seed = {place.seed}"]
    if place.load >= 1:
        lines.append(f"concurrency = {place.load:g}")
    elif place.load:
        lines.append(f"rate = {place.load * capacity(place, requests):.4g}")
    if place.workload not in DRIFTS:
        lines.append(f"requests = {requests}")
    lines.append(f"policy = {list(policies)}".replace("'", '"'))
    return "\n".join(["[[grid]]", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the grid of spec adaptive as a file for bench regret.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--sample", type=int, help="so many cells, drawn by --seed")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--policies", default="", help="others than those of the hindsight and adaptive, by spaces")
    given = parser.parse_args()
    cells = places(given.held_out)
    random.Random(given.seed).shuffle(cells)
    policies = tuple(given.policies.split()) or (*HINDSIGHT, "adaptive")
    parts: list[str] = []
    count = 0
    for place in cells:
        if count == (given.sample or len(cells)):
            break
        try:
            load_pair(place.gpu, MODEL).cost(place.cost)
            parts.append(table(place, given.requests, policies, (place.budget,)))
            if place.budget > 4096:
                parts.append(table(place, given.requests, ("v1",), (4096, 2048)))
        except UserError as error:
            print(f"left out: {place.gpu} {place.workload} {place.cost}: {error}")
            continue
        count += 1
    head = f'engine = "simulated"\nmodel = "{MODEL}"\nslo = "ttft_s=1,tpot_s=0.05"\n\n'
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(head + "\n".join(parts), encoding="utf-8")
    print(f"{given.out}: {count} cells")


if __name__ == "__main__":
    main()
