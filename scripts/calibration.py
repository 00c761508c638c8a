"""How often words are wrong, measured: equals against equals, coverage, slowdowns seen, overload seen.

Simulates small runs in memory (32 slots, an L40S) and lets the code that decides words decide. The tables of
docs/calibration.md are its output: `python scripts/calibration.py --pairs 300 --out docs/calibration.md` (`make soak`).
"""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from calibrated_runs import (
    BASE,
    IN_FLIGHT,
    MEMORY,
    NO_ALPHA,
    NOISES,
    OTHER,
    OVERLOAD,
    WORKLOADS,
    arms,
    capacity,
    load,
    simulate,
)
from scipy.stats import beta

from harness.core.runspec import RunSpec
from harness.measure.checks import ABOVE_CAPACITY
from harness.measure.repeats import repeats_to_show, shift_of
from harness.report.rows import compared_rows, withheld
from harness.report.spread import deviation_of
from harness.report.words import BETTER, WORSE, ComparedMetric, Rules, decide, headline_of
from harness.runs.run import Run

# More runs of the baseline where there are some (A/A), repeats of an interval, slots where one is looked at (real
# lengths come in clusters, of which a small run may hold one or none), and requests of a long run.
AA, REPEATS, WIDE = 5, 5, 2 * IN_FLIGHT
LONG = 1000 * WIDE
LOADS = (0.9, 1.2)
T = TypeVar("T")


class Each(Protocol):
    """Maps trials over what they are asked, in processes, in order."""

    def __call__(self, trial: Callable[[Any], T], asked: Sequence[Any], /) -> Iterable[T]:
        """What each trial tells."""


def words(pairs: Sequence[tuple[Run, Run]], equals: Sequence[Sequence[Run]] = ()) -> dict[str, ComparedMetric]:
    """The headline rows with their words, as `bench compare` would say them."""
    rows = compared_rows(pairs, equals, NO_ALPHA, True, MEMORY)  # type: ignore[arg-type]
    headline = headline_of(rows, Rules())
    kept = withheld(pairs, list(rows), MEMORY)  # type: ignore[arg-type]
    return {name: row for name, row in decide(rows, headline, Rules(), kept, {}).items() if name in headline}


def binomial(k: int, n: int) -> str:
    """k of n in percent with its 95 % interval (Clopper and Pearson)."""
    if not n:
        return "-"
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    high = 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))
    return f"{100 * k / n:.1f} % ({k} of {n}; {100 * low:.1f}–{100 * high:.1f})"


def is_word(row: ComparedMetric) -> bool:
    """Whether the row says that the arms differ."""
    return row.word in (BETTER, WORSE)


def kind_of(name: str) -> str:
    """rate, TTFT or TPOT."""
    return "rate" if "throughput" in name else name[:4].upper()


def table_of_equals(pairs: int, each: Each) -> Iterator[str]:
    """False words of equals, a line a scenario and method."""
    yield "| workload | load | noise | method | rate | TTFT | TPOT | any headline word |"
    yield "|---|---|---|---|---|---|---|---|"
    for workload in WORKLOADS:
        for label, share in (("closed", None), ("open, 60 %", 0.6), ("open, 95 %", 0.95)):
            for noise in NOISES:
                if noise.startswith("steps") and share is not None:
                    continue
                spec = load(workload, share)
                tally: dict[str, Counter[str]] = {}
                for told in each(_told_of_equals, [(spec, noise, trial + 1) for trial in range(pairs)]):
                    for method, kinds in told.items():
                        tally.setdefault(method, Counter()).update([*kinds, *(["any"] if kinds else [])])
                for method, counts in tally.items():
                    cells = [binomial(counts[kind], pairs) for kind in ("rate", "TTFT", "TPOT", "any")]
                    if share is not None:
                        cells[0] = "set by the arrivals"
                    yield f"| {workload.partition(':')[0]} | {label} | {noise} | {method} | {' | '.join(cells)} |"


def _told_of_equals(asked: tuple[RunSpec, str, int]) -> dict[str, list[str]]:
    """By method the headline rows of one pair of equals that have a word."""
    spec, noise, seed = asked
    found = arms(spec, noise, 3, seed)
    said = {"3 repeats": words(found)}
    if noise.startswith("runs"):
        said |= with_equals(spec, found, seed)
    MEMORY.runs.clear()
    return {method: [kind_of(name) for name, row in rows.items() if is_word(row)] for method, rows in said.items()}


def with_equals(spec: RunSpec, found: Sequence[tuple[Run, Run]], seed: int) -> dict[str, dict[str, ComparedMetric]]:
    """The same with more runs of A on its first stream (A/A): one repeat, and three."""
    own = seed * 1000
    draw = np.random.default_rng([own, 9]).standard_normal(AA)
    more = [simulate(replace(spec, seed=own), own + 900 + place, 0.0, 1 + 0.01 * z) for place, z in enumerate(draw)]
    group = [found[0][0], *more]
    return {f"1 repeat, --aa {AA}": words(found[:1], [group]), f"3 repeats, --aa {AA}": words(found, [group])}


def table_of_coverage(runs: int, each: Each) -> Iterator[str]:
    """How often an interval holds what a long run says: of v1's values, and of another policy's over them."""
    yield "| workload | interval | rate | TTFT | TPOT |"
    yield "|---|---|---|---|---|"
    for workload in WORKLOADS:
        told = workload.partition(":")[0]
        spec = load(workload, None, slots=WIDE)
        truths = list(each(_steady, [replace(spec, requests=LONG, seed=10**6, policy=one) for one in ("v1", OTHER)]))
        truth = {name: one[0] for name, one in truths[0].items()}
        runs_of = [replace(spec, seed=20_000 + trial) for trial in range(REPEATS * runs)]
        short = [
            list(each(_steady, [replace(one, policy=policy) for one in runs_of])) for policy in ("v1", OTHER)
        ]  # fmt: skip
        counts: dict[str, list[int]] = {"ratio": [], "repeats": [], "one": []}
        for name, true in truth.items():
            a, b = (np.log([one[name][0] for one in arm]).reshape(-1, REPEATS) for arm in short)
            counts["ratio"].append(_held(b - a, math.log(truths[1][name][0] / true)))
            counts["repeats"].append(_held(a, math.log(true)))
            counts["one"].append(sum(one[name][1] <= true <= one[name][2] for one in short[0]))
        rows = (
            (f"{OTHER} over v1, five paired repeats", "ratio", runs),
            ("v1, five repeats", "repeats", runs),
            ("v1, one run, over requests", "one", REPEATS * runs),
        )
        for label, key, n in rows:
            yield f"| {told} | {label} | {' | '.join(binomial(count, n) for count in counts[key])} |"


def _held(logs: npt.NDArray[np.float64], true: float) -> int:
    """In how many rows the 95 % interval of the mean (Student's t, as words are made) holds the truth."""
    return sum(abs(shift.mean - true) <= shift.half() for row in logs if (shift := shift_of(row.tolist())) is not None)


def _steady(spec: RunSpec) -> dict[str, tuple[float, float, float]]:
    """The steady headline values of a run, each with the interval over its requests."""
    estimates = MEMORY.runs[simulate(spec).path].estimates
    MEMORY.runs.clear()
    steady = {name: one for name, one in estimates.items() if name.endswith("_steady") and one is not None}
    return {name: (one.value, *(one.interval() or (math.inf, -math.inf))) for name, one in steady.items()}


def table_of_slowdowns(pairs: int, each: Each) -> Iterator[str]:
    """Before and after of 30 % with three repeats, of 3 % with the repeats that `bench power` names."""
    yield "| workload | slower by | repeats | rate seen worse | TPOT seen worse |"
    yield "|---|---|---|---|---|"
    for workload in WORKLOADS:
        spec = load(workload, None)
        pilot = arms(spec, "runs ±1 %", 8, 77)
        rates = [[MEMORY.runs[run.path].estimates["output_throughput_steady"] for run in pair] for pair in pilot]
        MEMORY.runs.clear()
        ratios = [b.value / a.value for a, b in rates if a is not None and b is not None]
        named = repeats_to_show(math.log(1.03), deviation_of(ratios), 0.95, 0.05 / 3) or 40
        for slower, repeats in ((1.30, 3), (1.03, named)):
            trials = [(spec, repeats, 5000 + trial, slower) for trial in range(pairs)]
            seen = Counter(kind for kinds in each(_seen_worse, trials) for kind in kinds)
            told = " | ".join(binomial(seen[kind], pairs) for kind in ("rate", "TPOT"))
            yield f"| {workload.partition(':')[0]} | {100 * (slower - 1):.0f} % | {repeats} | {told} |"


def _seen_worse(asked: tuple[RunSpec, int, int, float]) -> list[str]:
    """The headline rows in which the slower arm of one comparison is worse."""
    spec, repeats, seed, slower = asked
    rows = words(arms(spec, "runs ±1 %", repeats, seed, slower))
    MEMORY.runs.clear()
    return [kind_of(name) for name, row in rows.items() if row.word == WORSE]


def table_of_overload(runs: int, each: Each) -> Iterator[str]:
    """How often a rate is called above capacity, by its share of what the slots can serve of the same requests."""
    yield f"| workload | requests | {' | '.join(f'{share:g} ×' for share in LOADS)} |"
    yield "|---|---|" + "---|" * len(LOADS)
    for workload in WORKLOADS:
        called = np.array(list(each(_are_above, [(workload, 40_000 + trial) for trial in range(runs)]))).sum(axis=0)
        cells = " | ".join(binomial(int(count), runs) for count in called)
        yield f"| {workload.partition(':')[0]} | {OVERLOAD:,} | {cells} |"


def _are_above(asked: tuple[str, int]) -> list[bool]:
    """Whether a run of these requests is called above capacity, at each load."""
    workload, seed = asked
    own = capacity(workload, OVERLOAD, seed)
    found = []
    for share in LOADS:
        spec = replace(BASE, workload=workload, arrival=f"poisson:rate={share * own:.6f}", requests=OVERLOAD, seed=seed)
        beyond = MEMORY.runs[simulate(spec).path].beyond
        found.append((beyond or 0.0) > ABOVE_CAPACITY)
    MEMORY.runs.clear()
    return found


PARTS = {
    "Equals against equals: false words": table_of_equals,
    "Coverage of the long run": table_of_coverage,
    "Slowdowns seen": table_of_slowdowns,
    "Rates above capacity": table_of_overload,
}


def main() -> None:
    """Prints the tables, and puts them into the document in the place of those of the same title."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="pairs (or runs) a scenario")
    parser.add_argument("--only", default="", help="a word in the title of the tables to make")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, help="the document whose tables are made anew")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:

        def each(trial: Callable[[Any], T], asked: Sequence[Any]) -> Iterable[T]:
            return pool.map(trial, asked, chunksize=4)

        for title, make in PARTS.items():
            if options.only.lower() not in title.lower():
                continue
            print(f"\n## {title}\n", flush=True)
            lines = []
            for line in make(options.pairs, each):
                print(line, flush=True)
                lines.append(line)
            if options.out:
                _put(options.out, title, "\n".join(lines))


def _put(document: Path, title: str, table: str) -> None:
    """Puts a table under its title, in the place of what stands there up to the next title."""
    before, _, rest = document.read_text(encoding="utf-8").partition(f"## {title}\n")
    _, mark, after = rest.partition("\n## ")
    document.write_text(f"{before}## {title}\n\n{table}\n{mark}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
