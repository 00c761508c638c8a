"""What planning costs: µs per admission with 100,000 requests waiting, for each offline planner.

Run by hand: python tests/bench/planning.py [--waiting 100000] [--slots 16,256,1024] [--alpha 50,100,400]
Lengths are lognormal (median 90, at most 905) and uniform (up to 100,000, α scaled with them). CPU time of one core.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from policies.offline.baselines import fcfs, ljf, makespan, sjf
from policies.offline.isjl import isjl, isjl_best, isjl_paper

PLANNERS: dict[str, Callable[[list[int], int, int], list[int]]] = {
    "fcfs": lambda lengths, slots, _: fcfs(lengths, slots),
    "sjf": lambda lengths, slots, _: sjf(lengths, slots),
    "ljf": lambda lengths, slots, _: ljf(lengths, slots),
    "isjl": isjl,
    "isjl β=α/2": lambda lengths, slots, alpha: isjl(lengths, slots, alpha, alpha // 2),
    "isjl-paper": isjl_paper,
    "isjl-best": isjl_best,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--slots", default="16,256,1024")
    parser.add_argument("--alpha", default="50,100,400")
    given = parser.parse_args()
    rng = random.Random(1)
    laws = {
        "lognormal": ([max(1, min(905, round(90 * rng.lognormvariate(0, 0.82)))) for _ in range(given.waiting)], 1),
        "uniform": ([rng.randint(1, 100_000) for _ in range(given.waiting)], 110),
    }
    worst = 0.0
    for law, (lengths, scale) in laws.items():
        for slots in map(int, given.slots.split(",")):
            for alpha in (scale * int(text) for text in given.alpha.split(",")):
                for name, planner in PLANNERS.items():
                    before = time.process_time()
                    starts = planner(lengths, slots, alpha)
                    each = (time.process_time() - before) / len(lengths) * 1e6
                    worst = max(worst, each)
                    steps = makespan(lengths, starts)
                    print(f"{law:<10} B={slots:<5} α={alpha:<6} {name:<11} {each:6.2f} µs  {steps:>12,} steps")
    print(f"worst: {worst:.2f} µs an admission")


if __name__ == "__main__":
    main()
