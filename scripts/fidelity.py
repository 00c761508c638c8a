"""Every published cell with a known protocol and every real run, predicted by every cost model: docs/fidelity.md.

Run: python scripts/fidelity.py --shared ../shared > docs/fidelity.md
What is assumed stands in published_cells.py and silicon_cells.py. Nothing here is tuned; v1 of Table 4 chose the
authors' host constants and is left out of the scores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import published_sweep
import silicon_cells
from published_cells import MIXED, MODELS, THROUGHPUT, Cell, Setup, cells, run, setups
from real_runs import print_real_runs

# The authors' own re-runs of nine published cells differ from the paper by this much, mean of absolute values, %.
RERUNS = {"throughput": 11, "ttft": 30, "tpot": 36}
# A gain of less is within what a published figure may be off by.
CLEAR = 5.0
# Scored by themselves: another kind of model, another engine, and a figure whose protocol nobody knows.
APART = (MIXED, "v0 of Table 3", "Figure 3")
INTRODUCTION = """# How far is the simulation from what was measured?

Made by `python scripts/fidelity.py --shared ../shared > docs/fidelity.md`; the published tables are those of arXiv
2606.00516, its plots and its repository (weifang231/eb-vllm), and are not part of this one. What is assumed of each
experiment stands in scripts/published_cells.py; the lengths of Table 4 and of the synthetic workloads are those of the
authors' own generators, number for number. The sweep of k is their result files of January 2026
(scripts/published_sweep.py).

What was fitted on what: the host's time of the authors' two machines (t0 and h, `kernels` alone) was chosen by
throughput and TPOT of v1 in Table 4, 12 figures; they are listed and not scored. `linear` is the authors' own fit of
step times to their machines. Nothing else was fitted to any figure here. What was decided with figures in view:

- EB keeps KV free by a forecast (`gate=forecast`) and not by the gate as printed. The forecast itself has no constant
  from them. With the printed gate kernels is off by 3.2 / 5.1 % in throughput and its bias is −3.4 points; NuminaMath
  on the H200 then loses 30 % where 2.5 % was published.
- EB runs with θ at 0.7 or above and EB+ with δ = 1e-5 s/token besides, as the authors' measured policies behave.
- Policies are told the authors' own calibration, as theirs were. At first they were told the constants of the model
  that a run is priced by; that was changed after the first score.
- Figure 4 ran at one N at first. The paper reports each policy at its own best N and B; so does this page now, over N.
  That was decided by its text, after the first score.
- Figure 3 stands apart since it was scored (12 % off in the mean). Its protocol is not known: the authors' own second
  run by their script gave v1 11,200, 17,424 and 31,539 tok/s where the figure has 13,974, 19,509 and 32,228
  (reproduce/PAPER_TEXT_CHANGES.md), and its row of EB(k*) has the TPOT of runs with uniform outputs, its curves that of
  geometric ones.
- The sweep of k was added then: the same experiment, with lengths and limits in its files. Of its 27 runs six had been
  looked at before, and nothing was changed for them.

An error is simulated less published over published. The last column is how far the authors' own second runs of nine
cells lie from their paper. "–": the model does not price that run."""
Results = dict[tuple[Setup, str], dict[str, float] | None]


@dataclass(frozen=True, slots=True)
class Gain:
    """A policy's change of a metric against v1 in the same experiment, %: published, and by each model."""

    group: str
    place: str
    policy: str
    published: float
    simulated: dict[str, float]


def kind(metric: str) -> str:
    """Throughput, TTFT or TPOT."""
    return "throughput" if metric in THROUGHPUT.values() else metric


def value(cell: Cell, model: str, results: Results) -> float:
    """What a model gives for a cell's figure; NaN where it does not price the run."""
    metrics = results[cell.setup, model]
    return metrics[cell.metric] if metrics else float("nan")


def error(cell: Cell, model: str, results: Results) -> float:
    """Simulated less published over published, %; NaN where the model does not price the run."""
    return 100 * (value(cell, model, results) / cell.value - 1)


def shown(number: float, form: str) -> str:
    """A number in a form, a dash for what there is none of."""
    return "–" if np.isnan(number) else format(number, form)


def base_of(cell: Cell, known: Iterable[Cell]) -> Cell | None:
    """v1's figure beside this one: the same experiment, GPU, workload and load; each policy has its own N and B."""
    one = cell.setup
    same = (cell.group, cell.metric, one.gpu, one.model, one.workload, one.load)
    for other in known:
        it = other.setup
        if it.policy == "v1" and (other.group, other.metric, it.gpu, it.model, it.workload, it.load) == same:
            return other
    return None


def gains(known: list[Cell], results: Results, metric: str = "throughput") -> list[Gain]:
    """The change of a metric of every cell that has v1 beside it, once an experiment."""
    found: dict[tuple[str, str, str], Gain] = {}
    for cell in known:
        base = base_of(cell, known)
        if kind(cell.metric) != metric or cell.setup.policy == "v1" or base is None:
            continue
        simulated = {model: change(value(cell, model, results), value(base, model, results)) for model in MODELS}
        gain = Gain(cell.group, cell.place, cell.setup.policy, change(cell.value, base.value), simulated)
        found.setdefault((gain.group, gain.place, gain.policy), gain)
    return list(found.values())


def change(value: float, base: float) -> float:
    """The change of a value against a base, %."""
    return 100 * (value / base - 1)


def print_cells(known: list[Cell], results: Results) -> None:
    """A line a published figure: what it is, and by how much each model misses it."""
    print("\n## Every figure")
    for group in dict.fromkeys(cell.group for cell in known):
        print(f"\n### {group}\n")
        print("| cell | policy | metric | published |" + "".join(f" {model} % |" for model in MODELS))
        print("|---|---|---|---|" + "---|" * len(MODELS))
        for cell in (one for one in known if one.group == group):
            name = f"{kind(cell.metric)}{' (chose t0 and h)' if cell.chose_hosts and cell.metric != 'ttft' else ''}"
            missed = "".join(f" {shown(error(cell, model, results), '+.1f')} |" for model in MODELS)
            print(f"| {cell.place} | {cell.setup.policy} | {name} | {cell.value:,.4g} |{missed}")


def print_errors(known: list[Cell], results: Results) -> None:
    """Median and mean of the absolute errors by experiment and metric."""
    print("\n## Errors, median / mean of absolute values, %\n")
    print("| experiment | metric | figures |" + "".join(f" {model} |" for model in MODELS) + " authors' re-runs |")
    print("|---|---|---|" + "---|" * (len(MODELS) + 1))
    scored = [cell for cell in known if not cell.chose_hosts]
    groups = {group: (group,) for group in dict.fromkeys(cell.group for cell in scored)}
    whole = tuple(group for group in groups if group not in APART)
    sums = {"all of Qwen3-8B": whole, "the same and Figure 3": (*whole, "Figure 3")}
    for group, those in (sums | groups).items():
        for metric, reruns in RERUNS.items():
            some = [cell for cell in scored if kind(cell.metric) == metric and cell.group in those]
            if not some:
                continue
            line = f"| {group} | {metric} | {len(some)} |"
            for model in MODELS:
                missed = np.abs([error(cell, model, results) for cell in some])
                missed = missed[~np.isnan(missed)]
                line += f" {np.median(missed):.1f} / {np.mean(missed):.1f} |" if len(missed) else " – |"
            print(f"{line} {reruns} |")


def print_gains(found: dict[str, list[Gain]]) -> None:
    """Every change of throughput against v1, then of each metric the signs held, and the bias."""
    throughput = found["throughput"]
    print("\n## Changes of throughput against v1, %\n")
    print("| experiment | cell | policy | published |" + "".join(f" {model} |" for model in MODELS))
    print("|---|---|---|---|" + "---|" * len(MODELS))
    for gain in throughput:
        told = "".join(f" {shown(gain.simulated[model], '+.1f')} |" for model in MODELS)
        print(f"| {gain.group} | {gain.place} | {gain.policy} | {gain.published:+.1f} |{told}")
    scored = {metric: [gain for gain in some if gain.group not in APART] for metric, some in found.items()}
    print(f"\nOf Qwen3-8B. Signs are those of changes of more than {CLEAR:g} % as published.\n")
    print("| change of | model | changes | signs held | bias, points | median of absolute errors, points |")
    print("|---|---|---|---|---|---|")
    for metric, some in scored.items():
        clear = [gain for gain in some if abs(gain.published) > CLEAR]
        for model in MODELS:
            missed = [gain.simulated[model] - gain.published for gain in some]
            middle = np.median(np.abs(missed))
            signs = f"{held(clear, model)} of {len(clear)}"
            print(f"| {metric} | {model} | {len(some)} | {signs} | {np.mean(missed):+.1f} | {middle:.1f} |")
    engine = [gain for gain in throughput if gain.policy == "v0-engine"]
    print(f"\nvLLM's first engine (`v0-engine`): the sign of {held(engine)} of {len(engine)} changes, under kernels.")
    for name, some in (("", scored["throughput"]), (", with Figure 3", throughput_of_all(throughput))):
        all_three = [gain for gain in some if len({np.sign(one) for one in gain.simulated.values()}) == 1]
        for least in (2.0, CLEAR):
            agree = [gain for gain in all_three if min(abs(one) for one in gain.simulated.values()) > least]
            print(f"\nWhere all three models agree beyond {least:g} points{name}: the published sign in", end=" ")
            print(f"{held(agree)} of {len(agree)}.")
        means = [np.mean([gain.simulated[one] for one in ("roofline", "kernels")]) - gain.published for gain in some]
        band = np.quantile(np.abs(means), 0.8)
        print(f"\n80 % of the errors of the mean of roofline and kernels{name}: within ±{band:.1f} points.")


def held(some: Sequence[Gain], model: str = "kernels") -> int:
    """How many changes have the published sign under a model."""
    return sum(np.sign(gain.published) == np.sign(gain.simulated[model]) for gain in some)


def throughput_of_all(found: Sequence[Gain]) -> list[Gain]:
    """The changes of Qwen3-8B in one engine, Figure 3 with them."""
    return [gain for gain in found if gain.group not in APART or gain.group == "Figure 3"]


def print_silicon(points: Sequence[silicon_cells.Point], pool: ProcessPoolExecutor) -> None:
    """Median absolute errors of NVIDIA's own end-to-end points, by the number of GPUs that share the model."""
    models = [model for model in MODELS if model != "linear"]
    print("\n## NVIDIA's end-to-end points: Qwen3-32B on H100s, vLLM 0.12, median of absolute errors, %\n")
    print(
        "Of silicon_sample.csv in the package of the kernel tables; bf16, 8 to 128 in flight, v1; nothing was fitted."
    )
    print("TTFT is not scored: how those clients started is not told, and a closed loop of equals goes in waves.\n")
    print("| GPUs | points |" + "".join(f" TPOT, {model} |" for model in models))
    print("|---|---|" + "---|" * len(models))
    for tp in sorted({point.tp for point in points}):
        some = [point for point in points if point.tp == tp]
        line = f"| {tp} | {len(some)} |"
        for model in models:
            tpot = pool.map(silicon_cells.tpot, some, [model] * len(some))
            missed = [100 * abs(one / point.tpot_s - 1) for one, point in zip(tpot, some, strict=True)]
            line += f" {np.median(missed):.1f} |"
        print(line)


def _task(job: tuple[Setup, str]) -> tuple[tuple[Setup, str], dict[str, float] | None]:
    return job, run(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parents[1] / "../shared"
    parser.add_argument("--shared", type=Path, default=default, help="the folder of published and measured figures")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    reference = given.shared / "reference"
    if not reference.is_dir():
        sys.exit(f"{reference}: not there: name the folder of published figures with --shared")
    known = [*cells(reference / "paper_tables.json"), *published_sweep.cells()]
    jobs = [(setup, model) for setup in setups(known) for model in MODELS]
    results: Results = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for place, (job, found) in enumerate(pool.map(_task, jobs), 1):
            results[job] = found
            print(f"{place}/{len(jobs)}", end="\r", file=sys.stderr, flush=True)
        print(INTRODUCTION)
        print(f"\n{len(known)} published figures, {len(setups(known))} runs a model.")
        print_errors(known, results)
        print_gains({metric: gains(known, results, metric) for metric in RERUNS})
        print_real_runs(reference)
        table = silicon_cells.table()
        if table is None:
            sys.exit("the kernel tables' package is not installed (pip install 'schedbench[kernels]'): its points lack")
        print_silicon(silicon_cells.points(table), pool)
        print_cells(known, results)


if __name__ == "__main__":
    main()
