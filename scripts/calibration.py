"""How often words are wrong, measured: equals against equals, coverage, slowdowns seen, overload seen.

Simulates small runs in memory (64 slots, an L40S) and lets the code that decides words decide. The tables of
docs/calibration.md are its output: `python scripts/calibration.py --pairs 300 --out docs/calibration.md` (`make soak`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.stats import beta

from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.engines.simulated import Simulated
from harness.measure.estimate import Estimate
from harness.measure.measured import is_closed_loop, measure
from harness.measure.repeats import repeats_to_show
from harness.profiles.cost import CostModel
from harness.report.alpha import CommonAlpha
from harness.report.rows import compared_rows, withheld
from harness.report.spread import _deviation
from harness.report.words import BETTER, WORSE, ComparedMetric, Rules, decide, headline_of
from harness.runs.run import Run
from harness.session.one_run import stream_of

WORKLOADS = ("sharegpt", "synthetic:mu_l=512,mu_o=256,jitter=0.5")
IN_FLIGHT, WAVES, OPEN, OVERLOAD = 64, 12, 1000, 2000
BASE = RunSpec(gpu="l40s", model="Qwen/Qwen3-8B", policy="v1", workload="", slots=IN_FLIGHT, cost_model="roofline")
NO_ALPHA = CommonAlpha(None, frozenset(), None)
NOISES = {"other requests": (True, 0.0, 0.0), "steps ±10 %": (False, 0.1, 0.0), "runs ±1 %": (False, 0.0, 0.01)}


class Noisy:
    """A cost model whose runs are slower or faster as wholes, and whose steps vary, each by a normal factor."""

    def __init__(self, cost: CostModel, seed: int, step: float, factor: float) -> None:
        self._cost, self._rng, self._step, self._factor = cost, np.random.default_rng([seed, 7]), step, factor
        self.name = cost.name

    def seconds(self, *given: Any) -> float:
        """The cost of one step, s."""
        return self._cost.seconds(*given) * float(self._noise(1)[0])

    def decode_seconds(self, *given: Any) -> npt.NDArray[np.float64]:
        """The costs of steps in a row, s."""
        return self._cost.decode_seconds(*given) * self._noise(given[-1])

    def parameters(self) -> dict[str, float]:
        """Those of the model itself."""
        return self._cost.parameters()

    def _noise(self, n: int) -> npt.NDArray[np.float64]:
        wobble = self._step * self._rng.standard_normal(n) if self._step else np.zeros(n)
        return self._factor * np.maximum(1 + wobble, 0.1)


@dataclass(slots=True)
class Tables:
    """Takes rows as a run directory does."""

    requests: list[pa.RecordBatch] = field(default_factory=list)
    steps: list[pa.RecordBatch] = field(default_factory=list)

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Keeps request rows."""
        self.requests.append(batch)

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Keeps step rows."""
        self.steps.append(batch)


@dataclass(frozen=True, slots=True)
class Light:
    """What a comparison reads of a run, and nothing else: memory holds thousands."""

    estimates: dict[str, Estimate | None]
    beyond: float | None


class Memory:
    """Stands in for the reader of run directories."""

    def __init__(self) -> None:
        self.runs: dict[Path, Light] = {}

    def estimates(self, run: Run, _: float | None, names: Sequence[str]) -> dict[str, Estimate | None]:
        """Estimates by name, None for what is not kept."""
        return {name: self.runs[run.path].estimates.get(name) for name in names}

    def measured(self, run: Run, _: float | None) -> Light:
        """What is kept of the run."""
        return self.runs[run.path]

    def episodes(self, *_: Any) -> int:
        """No tail is a headline here."""
        return 0


MEMORY = Memory()
COUNT = iter(range(10**9))
HEADLINES = (*("output_throughput_steady", "output_throughput", "ttft_s_steady", "ttft_s", "tpot_s_steady", "tpot_s"),)


def simulate(spec: RunSpec, noise_seed: int = 0, step: float = 0.0, factor: float = 1.0) -> Run:
    """One run under this noise."""
    engine = Simulated(spec, stream_of(spec))
    engine.cost = Noisy(engine.cost, noise_seed, step, factor)
    tables = Tables()
    engine.replay(tables, lambda _: None, lambda: False)
    requests = pa.Table.from_batches(tables.requests, REQUESTS)
    measured = measure(requests, None, spec, is_closed_loop(spec))
    kept: dict[str, Estimate | None] = {}
    for name in HEADLINES:
        sample = measured.samples.get(name)
        kept[name] = sample.mean() if sample is not None else measured.rates.get(name)
    path = Path(str(next(COUNT)))
    MEMORY.runs[path] = Light(kept, measured.beyond)
    return Run(path, {"kind": "simulated", "status": "complete"}, spec, {})


def words(pairs: Sequence[tuple[Run, Run]], equals: Sequence[Sequence[Run]] = ()) -> dict[str, ComparedMetric]:
    """The headline rows with their words, as `bench compare` would say them."""
    rows = compared_rows(pairs, equals, NO_ALPHA, True, MEMORY)  # type: ignore[arg-type]
    headline = headline_of(rows, Rules())
    kept = withheld(pairs, list(rows), NO_ALPHA, MEMORY)  # type: ignore[arg-type]
    return {name: row for name, row in decide(rows, headline, Rules(), kept, {}).items() if name in headline}


@lru_cache
def capacity(workload: str) -> float:
    """Requests/s of a closed loop with a queue, which is what the slots can serve."""
    spec = replace(BASE, workload=workload, arrival=f"closed:concurrency={2 * IN_FLIGHT}", requests=3000)
    engine = Simulated(spec, stream_of(spec))
    tables = Tables()
    engine.replay(tables, lambda _: None, lambda: False)
    rate = measure(pa.Table.from_batches(tables.requests, REQUESTS), None, spec, True).rates[
        "request_throughput_steady"
    ]
    assert rate is not None
    return rate.value


def load(workload: str, share: float | None, requests: int | None = None) -> RunSpec:
    """A closed loop (`share` None), or an open one at this share of the capacity."""
    if share is None:
        arrival, n = f"closed:concurrency={IN_FLIGHT}", WAVES * IN_FLIGHT
    else:
        arrival, n = f"poisson:rate={share * capacity(workload):.6f}", OPEN
    return replace(BASE, workload=workload, arrival=arrival, requests=requests or n)


def arms(spec: RunSpec, noise: str, repeats: int, seed: int, slower: float = 1.0) -> list[tuple[Run, Run]]:
    """Paired repeats of equals (B slower by a factor, if told) under a kind of noise."""
    other, step, run = NOISES[noise]
    pairs = []
    for repeat in range(repeats):
        own = seed * 1000 + repeat
        draw = np.random.default_rng([own, 5]).standard_normal(2)
        a = simulate(replace(spec, seed=own, repeat=repeat), own, step, 1 + run * draw[0])
        b_seed = own + 500 if other else own
        b = simulate(replace(spec, seed=b_seed, repeat=repeat), own + 500, step, slower * (1 + run * draw[1]))
        pairs.append((a, b))
    return pairs


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
        named = repeats_to_show(math.log(1.03), _deviation(ratios), 0.95, 0.05 / 3) or 40
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
                called += (MEMORY.runs[run.path].beyond or 0.0) > 5
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
