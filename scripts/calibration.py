"""How often words are wrong, measured: equals against equals, coverage, slowdowns seen, overload seen.

Simulates small runs in memory (64 slots, an L40S) and lets the code that decides words decide. The tables of
docs/calibration.md are its output: `python scripts/calibration.py --pairs 300 --out docs/calibration.md` (`make soak`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from calibrated_runs import IN_FLIGHT, MEMORY, NO_ALPHA, NOISES, OTHER, OVERLOAD, WORKLOADS, arms, load, simulate
from scipy.stats import beta

from harness.core.runspec import RunSpec
from harness.measure.checks import ABOVE_CAPACITY
from harness.measure.repeats import repeats_to_show
from harness.report.rows import compared_rows, withheld
from harness.report.spread import deviation_of
from harness.report.words import BETTER, WORSE, ComparedMetric, Rules, decide, headline_of
from harness.runs.run import Run


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


def table_of_equals(pairs: int, aa: int) -> Iterator[str]:
    """False words of equals, a line a scenario and method."""
    yield "| workload | load | noise | method | rate | TTFT | TPOT | any headline word |"
    yield "|---|---|---|---|---|---|---|---|"
    for workload in WORKLOADS:
        for label, share in (("closed", None), ("open, 60 %", 0.6), ("open, 95 %", 0.95)):
            for noise in NOISES:
                if noise.startswith("steps") and share is not None:
                    continue
                spec = load(workload, share)
                tally: dict[str, dict[str, int]] = {}
                for trial in range(pairs):
                    found = arms(spec, noise, 3, trial + 1)
                    said = {"3 repeats": words(found)}
                    if noise.startswith("runs"):
                        said |= with_equals(spec, found, trial + 1, aa)
                    for method, rows in said.items():
                        counts = tally.setdefault(method, {})
                        for name, row in rows.items():
                            counts[kind_of(name)] = counts.get(kind_of(name), 0) + is_word(row)
                        counts["any"] = counts.get("any", 0) + any(map(is_word, rows.values()))
                    MEMORY.runs.clear()
                for method, counts in tally.items():
                    own = {kind: binomial(count, pairs) for kind, count in counts.items()}
                    if share is not None:
                        own["rate"] = "set by the arrivals"
                    cells = [own.get(kind, "-") for kind in ("rate", "TTFT", "TPOT", "any")]
                    yield f"| {workload.partition(':')[0]} | {label} | {noise} | {method} | {' | '.join(cells)} |"


def with_equals(
    spec: RunSpec, found: Sequence[tuple[Run, Run]], seed: int, aa: int
) -> dict[str, dict[str, ComparedMetric]]:
    """The same with more runs of A on its first stream (A/A): one repeat, and three."""
    own = seed * 1000
    draw = np.random.default_rng([own, 9]).standard_normal(aa)
    more = [simulate(replace(spec, seed=own), own + 900 + place, 0.0, 1 + 0.01 * z) for place, z in enumerate(draw)]
    group = [found[0][0], *more]
    return {f"1 repeat, --aa {aa}": words(found[:1], [group]), f"3 repeats, --aa {aa}": words(found, [group])}


def table_of_coverage(runs: int) -> Iterator[str]:
    """How often an interval holds what a long run says."""
    yield "| workload | interval | rate | TTFT | TPOT |"
    yield "|---|---|---|---|---|"
    for workload in WORKLOADS:
        spec = load(workload, None)
        long = MEMORY.runs[simulate(replace(spec, requests=300 * IN_FLIGHT, seed=10**6)).path].estimates
        truth = {name: one.value for name, one in long.items() if name.endswith("_steady") and one is not None}
        held, over = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
        series: dict[str, list[float]] = {name: [] for name in truth}
        for trial in range(5 * runs):
            estimates = MEMORY.runs[simulate(replace(spec, seed=20_000 + trial)).path].estimates
            for name, true in truth.items():
                one = estimates[name]
                assert one is not None
                series[name].append(one.value)
                bounds = one.interval()
                held[name] += bounds is not None and bounds[0] <= true <= bounds[1]
        for name, values in series.items():
            for five in np.array(values).reshape(-1, 5):
                half = 2.7764451 * five.std(ddof=1) / math.sqrt(5)
                over[name] += abs(five.mean() - truth[name]) <= half
        MEMORY.runs.clear()
        told = workload.partition(":")[0]
        ratios = dict.fromkeys(truth, 0)
        longer = replace(spec, requests=300 * IN_FLIGHT, seed=10**6, policy=OTHER)
        other = MEMORY.runs[simulate(longer).path].estimates
        for trial in range(runs):
            rows = words(arms(spec, "runs ±1 %", 5, 9000 + trial, policy=OTHER))
            for name, true in truth.items():
                row, of_other = rows[name], other[name]
                assert of_other is not None
                ends = (row.low or 0.0, row.high or 0.0)
                ratios[name] += ends[0] <= of_other.value / true <= ends[1]
        MEMORY.runs.clear()
        cells = " | ".join(binomial(ratios[name], runs) for name in truth)
        yield f"| {told} | {OTHER} against v1, five paired repeats | {cells} |"
        yield f"| {told} | five repeats | {' | '.join(binomial(over[name], runs) for name in truth)} |"
        yield f"| {told} | one run, over requests | {' | '.join(binomial(held[name], 5 * runs) for name in truth)} |"


def table_of_slowdowns(pairs: int) -> Iterator[str]:
    """Before and after of 30 % with three repeats, of 3 % with the repeats that `bench power` names."""
    yield "| workload | slower by | repeats | rate seen worse | TPOT seen worse |"
    yield "|---|---|---|---|---|"
    for workload in WORKLOADS:
        spec = load(workload, None)
        pilot = [run for pair in arms(spec, "runs ±1 %", 8, 77) for run in pair]
        logs = [MEMORY.runs[run.path].estimates["output_throughput_steady"] for run in pilot]
        ratios = [
            b.value / a.value for a, b in zip(logs[::2], logs[1::2], strict=True) if a is not None and b is not None
        ]
        named = repeats_to_show(math.log(1.03), deviation_of(ratios), 0.95, 0.05 / 3) or 40
        for slower, repeats in ((1.30, 3), (1.03, named)):
            seen = {"rate": 0, "TPOT": 0}
            for trial in range(pairs):
                for name, row in words(arms(spec, "runs ±1 %", repeats, 5000 + trial, slower)).items():
                    if kind_of(name) in seen:
                        seen[kind_of(name)] += row.word == WORSE
                MEMORY.runs.clear()
            told = " | ".join(binomial(count, pairs) for count in seen.values())
            yield f"| {workload.partition(':')[0]} | {100 * (slower - 1):.0f} % | {repeats} | {told} |"


def table_of_overload(runs: int) -> Iterator[str]:
    """How often a rate is called above capacity, by its share of the capacity."""
    loads = (0.6, 0.8, 0.9, 1.0, 1.2, 2.0)
    yield f"| workload | requests | {' | '.join(f'{share:g} ×' for share in loads)} |"
    yield "|---|---|" + "---|" * len(loads)
    for workload in WORKLOADS:
        cells = []
        for share in loads:
            called = 0
            for trial in range(runs):
                run = simulate(replace(load(workload, share, OVERLOAD), seed=40_000 + trial))
                called += (MEMORY.runs[run.path].beyond or 0.0) > ABOVE_CAPACITY
                MEMORY.runs.clear()
            cells.append(binomial(called, runs))
        yield f"| {workload.partition(':')[0]} | {OVERLOAD:,} | {' | '.join(cells)} |"


PARTS = {
    "Equals against equals: false words": lambda pairs: table_of_equals(pairs, 5),
    "Coverage of the long run": table_of_coverage,
    "Slowdowns seen": table_of_slowdowns,
    "Rates above capacity": table_of_overload,
}


def main() -> None:
    """Prints the tables, or writes them into the document between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="pairs (or runs) a scenario")
    parser.add_argument("--only", default="", help="a word in the title of the tables to make")
    parser.add_argument("--out", type=Path, help="the document whose tables are made anew")
    options = parser.parse_args()
    text = []
    for title, make in PARTS.items():
        if options.only.lower() in title.lower():
            print(f"\n## {title}\n", flush=True)
            lines = []
            for line in make(options.pairs):
                print(line, flush=True)
                lines.append(line)
            text.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    if options.out:
        before, mark, _ = options.out.read_text(encoding="utf-8").partition("<!-- tables -->\n")
        body = "\n".join(text)
        options.out.write_text(
            f"{before}{mark}\n{options.pairs} pairs (or runs) a scenario.\n\n{body}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
